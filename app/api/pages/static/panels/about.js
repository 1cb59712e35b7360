// What this service is, and where programs reach it.
import { root } from "../lib/api.js";
import { useFeed } from "../lib/feeds.js";
import { html } from "../lib/html.js";
import { shown } from "../lib/text.js";
import { Panel } from "../parts/panel.js";
import { Shown } from "../parts/states.js";

const LINKS = [
  ["docs", "every endpoint, to read and to try"],
  ["openapi.json", "the OpenAPI document"],
  ["v1/runs", "all runs, as JSON"],
  ["status", "status of the run of Atropos clients (the run default), as JSON"],
  ["metrics", "metrics for Prometheus"],
  ["healthz", "whether this process is alive"],
  ["readyz", "whether it can serve"],
  ["version", "which version it is"],
];

// Those that answer with JSON to anyone who may see this page.
const ANSWERS = ["version", "healthz", "v1/runs", "openapi.json"];

export function AboutView() {
  const version = useFeed("version", 60);
  const url = root.href.replace(/\/$/, "");
  return html`<${Panel} title="About this service" level=${1} paths=${["version"]}>
      <${Shown} feed=${version} role="viewer">
        ${(
          data,
        ) => html`<p>Lachesis ${shown(data.version)}: batches between rollout workers and trainers in reinforcement
          learning. Environments submit groups of scored sequences; trainers take batches of exactly the size they asked
          for.</p>`}
      <//>
      <p>
        Programs reach it at <code>${url}</code>: the SDK with <code>LACHESIS_URL=${url}</code>, Atropos clients with
        the same address, or with <code>${url}/runs/NAME/atropos</code> for the run <code>NAME</code>.
      </p>
    <//>
    <${Panel} title="Addresses" paths=${ANSWERS}>
      <dl class="links">
        ${LINKS.map(
          ([path, what]) => html`<div key=${path}>
            <dt><a href=${new URL(path, root).href}>/${path}</a></dt>
            <dd>${what}</dd>
          </div>`,
        )}
      </dl>
    <//>`;
}
