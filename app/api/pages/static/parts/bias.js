// What was generated beside what was trained on: by reward, length, time and environment, in the words of the API.
import { html } from "../lib/html.js";
import { choose, useRoute } from "../lib/route.js";
import { counted, known, measured, number, percent, shown } from "../lib/text.js";
import { Lines, QuantileLines } from "./chart.js";
import { width } from "./figures.js";
import { Outlines } from "./histogram.js";
import { each, useTimeFeed, useTimePath } from "./history.js";
import { Environment } from "./names.js";
import { Panel } from "./panel.js";
import { Rows } from "./rows.js";
import { Shown } from "./states.js";

const FIRST = 8; // environments, until the reader asks for more
const COUNTS = ["sequences", "tokens", "groups"];

/** Two distributions of a value, and their shift. */
export function Bias({ title, unit, feed, path }) {
  return html`<${Panel} title=${title} unit=${unit} paths=${[path]}>
    <${Shown} feed=${feed}>
      ${(found) =>
        html`<p>${found.shift ?? "No group was both generated and trained on in this time."}</p>
          <${Outlines} title=${`${title}, ${unit}`} edges=${found.edges} generated=${found.generated_total}
            trained=${found.trained_total} />`}
    <//>
  <//>`;
}

/**
 * How the bias developed: `own` are the series of an environment. `words` are feeds, and the sentence that each of
 * them has of it.
 */
export function TimeBias({ history, own, words, paths }) {
  const said = words.map(([feed, name]) => feed.data?.[name]).filter((sentence) => sentence);
  const both = (came, went) => [
    { label: "generated", values: came, token: "edge" },
    { label: "trained on", values: went, token: "accent", dash: 1 },
  ];
  const charts = [
    ["Mean reward", "of groups", both(own.reward_in.mean, own.reward_out.mean)],
    ["Mean length", "tokens in a sequence", both(own.length_in.mean, own.length_out.mean)],
    ["Amount", each(history, "sequences"), both(own.sequences_in, own.sequences_out)],
  ];
  return html`<${Panel} title="Bias by time" unit="generated and trained on" paths=${paths} wide>
    ${said.map((sentence) => html`<p key=${sentence}>${sentence}</p>`)}
    <div class="quarters">
      ${charts.map(
        ([title, unit, series]) => html`<div key=${title}>
          <h3>${title} <span class="unit">${unit}</span></h3>
          <${Lines} title=${`${title} generated and trained on, ${unit}`} times=${history.times_s}
            step=${history.step_s} series=${series} />
        </div>`,
      )}
      <div>
        <h3>Waiting <span class="unit">seconds before groups were trained on</span></h3>
        <${QuantileLines} title="Waiting" unit="seconds before groups were trained on" times=${history.times_s}
          step=${history.step_s} own=${own.waiting_s} />
      </div>
    </div>
  <//>`;
}

/** The shares of all environments in both, those that differ most first. */
export function EnvironmentBias({ run, environments, chosen, most }) {
  const wanted = useRoute().query.get("count");
  const count = COUNTS.includes(wanted) ? wanted : COUNTS[0];
  const [path, every] = useTimePath(`v1/runs/${run}/history/shares`, { count }, most);
  const feed = useTimeFeed(path, every);
  const pick = (name) => choose({ count: name === COUNTS[0] ? null : name });
  return html`<${Panel} title="Bias by environment" unit=${`shares in all ${count}`} paths=${[path]} wide>
    <div class="filter times" role="group" aria-label="What is counted">
      ${COUNTS.map(
        (name) =>
          html`<button key=${name} type="button" aria-pressed=${name === count} onClick=${() => pick(name)}>
            ${name}
          </button>`,
      )}
    </div>
    <${Shown} feed=${feed}>
      ${(found) => html`<${Shares} found=${found} environments=${environments} chosen=${chosen} />`}
    <//>
  <//>`;
}

function Shares({ found, environments, chosen }) {
  const isAll = useRoute().query.get("environments") === "all";
  const unfold = () => choose({ environments: isAll ? null : "all" });
  const all = found.environments;
  if (all.length === 0) return html`<p class="quiet">Nothing was generated or trained on in this time.</p>`;
  const own = new Map(environments.map((one) => [one.name, one]));
  const most = Math.max(...all.flatMap((one) => [one.generated_share ?? 0, one.trained_share ?? 0]));
  const missing = found.trained === 0 ? "trained on" : "generated";
  return html`<p>${shown(found.shift ?? `Nothing was ${missing} in this time.`, 500)}</p>
    <div class="bias heads quiet" aria-hidden="true">
      <span>Environment</span><span>up to ${percent(most)}</span
      ><span class="number"><i class="line"></i> Generated</span
      ><span class="number"><i class="line" data-of="trained"></i> Trained on</span
      ><span class="number difference">Difference</span>
    </div>
    <${Rows}
      label="Environments, the largest difference first"
      items=${isAll ? all : all.slice(0, FIRST)}
      id=${(one) => one.name}
      height=${36}
      draw=${(one) => html`<${Share} one=${one} own=${own.get(one.name)} chosen=${chosen} most=${most} />`}
    />
    ${
      all.length > FIRST &&
      html`<button type="button" class="small" aria-expanded=${isAll} onClick=${unfold}>
        ${isAll ? `Only the ${FIRST} largest differences` : `All ${counted(all.length, "environment")}`}
      </button>`
    }`;
}

function Share({ one, own, chosen, most }) {
  const points = (share) => `${share > 0 ? "+" : ""}${measured(100 * share)} points`;
  return html`<div class="bias" data-environment=${own?.id}>
    ${
      own === undefined
        ? html`<span class="quiet">${one.name === "" ? "all others" : shown(one.name, 48)}</span>`
        : html`<button
            type="button"
            aria-pressed=${own === chosen}
            onClick=${() => choose({ environment: own.id })}
          >
            <${Environment} id=${own.id} name=${own.name} />
          </button>`
    }
    <span class="pairs" aria-hidden="true">
      <i style=${{ width: width(one.generated_share ?? 0, most) }}></i>
      <i data-of="trained" style=${{ width: width(one.trained_share ?? 0, most) }}></i>
    </span>
    <span class="number" aria-hidden="true" title=${number(one.generated)}>${known(one.generated_share, percent)}</span>
    <span class="number" aria-hidden="true" title=${number(one.trained)}>${known(one.trained_share, percent)}</span>
    <span class="number difference" aria-hidden="true">${known(one.difference, points)}</span>
    <span class="spoken">${one.shift === null ? "" : shown(one.shift, 500)}</span>
  </div>`;
}
