// Batches: what the latest ones consist of and where they are, and how evenly each was divided between ranks.
import { useFeed } from "../lib/feeds.js";
import { html, useState } from "../lib/html.js";
import { address, useRoute } from "../lib/route.js";
import { duration, known, number, percent, shown } from "../lib/text.js";
import { showRange, useTime } from "../lib/time.js";
import { stateOf } from "../parts/batch.js";
import { Lines } from "../parts/chart.js";
import { Pages } from "../parts/fields.js";
import { History } from "../parts/history.js";
import { Environment, hue, Mark } from "../parts/names.js";
import { Panel } from "../parts/panel.js";
import { Headline, useStatus } from "../parts/run.js";
import { Rows } from "../parts/rows.js";
import { Empty, Shown } from "../parts/states.js";
import { TimeBar } from "../parts/time_bar.js";
import { BatchView } from "./batch.js";

const PAGE = 100;
const MOST_KEPT = 128; // batches that a run remembers
const MOST_NAMED = 16; // environments in the legend; of more, the bars tell
const TITLES = [
  ["Step", "number"],
  ["State"],
  ["By environment"],
  ["Sequences", "number"],
  ["Groups", "number"],
  ["Deliveries", "number"],
  ["Imbalance (best possible)", "number"],
  ["Formed", "number"],
];

export function BatchesView({ run }) {
  const { query } = useRoute();
  const status = useStatus(run);
  const opened = query.get("batch") || null;
  return html`<${Shown} feed=${status}>
    ${(data) =>
      html`<${Headline} status=${data} />
        ${
          opened === null
            ? html`<${TimeBar} /><${Latest} run=${run} status=${data} query=${query} />
                <${Imbalance} run=${run} status=${data} />`
            : html`<${BatchView} key=${opened} run=${run} id=${opened} />`
        }`}
  <//>`;
}

function Latest({ run, status, query }) {
  const { from, to } = useTime();
  const asked = new URLSearchParams({ limit: PAGE });
  if (from !== null) asked.set("from", from);
  if (to !== null) asked.set("to", to);
  if (query.get("cursor")) asked.set("cursor", query.get("cursor"));
  const path = `v1/runs/${run}/batches/recent?${asked}`;
  const feed = useFeed(path);
  const { environments } = status;
  return html`<${Panel} title="Latest batches" paths=${[path]} wide>
    ${
      environments.length <= MOST_NAMED &&
      html`<ul class="legend" aria-label="Colours of environments">
        ${environments.map((one) => html`<li key=${one.id}><${Environment} id=${one.id} name=${one.name} /></li>`)}
      </ul>`
    }
    <${Shown} feed=${feed}>${(data) => html`<${Found} key=${path} run=${run} data=${data} query=${query}
      isAny=${from === null && to === null} />`}<//>
  <//>`;
}

// The list stays where it is while it is read; the states of its batches follow. Newer batches wait at the top.
function Found({ run, data, query, isAny }) {
  const { batches, cursor } = data;
  const [first, setFirst] = useState(batches[0]?.batch ?? null);
  const newest = batches[0]?.batch ?? null;
  const open = ({ batch }) => address("batches", run, { ...Object.fromEntries(query), batch });
  const place = batches.findIndex((one) => one.batch === first);
  const newer = Math.max(0, place);
  const showNew = ({ target }) => {
    setFirst(newest);
    target.parentElement.focus({ preventScroll: true }); // the button goes
  };
  if (place < 0 && newest !== null) setFirst(newest); // the first, or so many are newer that it is on the next page
  if (batches.length === 0 && !isAny) {
    return html`<${Empty}>
      No batch of this time is among the latest ${MOST_KEPT} that the run remembers.${" "}
      <button type="button" class="small" onClick=${() => showRange("1h")}>Show the latest</button>
    <//>`;
  }
  if (batches.length === 0) {
    return html`<${Empty}>
      No batch was handed out yet. <a data-page href=${address("now", run)}>Now</a> says what the next one waits for.
    <//>`;
  }
  return html`
    <p class="quiet reading" role="status" tabindex="-1">
      ${
        newer > 0
          ? html`<button type="button" class="small" onClick=${showNew}>
              ${number(newer)} new: show them
            </button>`
          : "No newer batches."
      }
    </p>
    <${Rows} label="Batches" kind="batch-row" titles=${TITLES} items=${batches.slice(newer)} id=${(one) => one.batch}
      height=${36} draw=${(one) => html`<${Row} batch=${one} href=${open(one)} />`} />
    <${Pages} query=${query} cursor=${cursor} first="Newest" next="Older"
      >A run remembers its latest ${MOST_KEPT} batches.${isAny ? "" : " These were formed in the time above."}<//
    >`;
}

function Row({ batch, href }) {
  const { ranks } = batch;
  return html`<div class="entry batch-row" data-batch=${batch.batch}>
    <span role="cell" class="number"
      ><a data-page href=${href}>${number(batch.step)}</a></span
    >
    <span role="cell">${stateOf(batch)}${batch.relaxed ? html` <span class="relaxed">relaxed</span>` : ""}</span>
    <${Composition} environments=${batch.environments} />
    <span role="cell" class="number">${number(batch.size)}</span>
    <span role="cell" class="number">${number(batch.groups)}</span>
    <span role="cell" class="number">${known(batch.delivery_count, number)}</span>
    <span role="cell" class="number">${balanceOf(ranks)}</span>
    <span role="cell" class="number">${known(batch.formed_age_s, (age) => `${duration(age)} ago`)}</span>
  </div>`;
}

const balanceOf = (ranks) => (ranks === null ? "–" : `${percent(ranks.imbalance)} (${percent(ranks.bound)})`);

const nameOf = ({ environment, name }) =>
  environment === null ? "no environment" : shown(name ?? `environment ${environment}`, 48);

// Each part has the mark of its environment where it has room, and the names stand below in the same order.
function Composition({ environments }) {
  const text = environments.map((one) => `${nameOf(one)} ${number(one.sequences)}`).join(", ");
  return html`<span role="cell" class="composition" title=${text}>
    <span class="parts" role="img" aria-label=${text}>
      ${environments.map(
        ({ environment, sequences }) => html`<span
          key=${environment}
          data-hue=${environment === null ? null : hue(environment)}
          style=${{ flexGrow: sequences }}
          >${environment !== null && html`<${Mark} id=${environment} inverse />`}</span
        >`,
      )}
    </span>
    <span class="quiet" aria-hidden="true">${text}</span>
  </span>`;
}

function Imbalance({ run, status }) {
  if (status.ranks === null) return null;
  return html`<${History} run=${run} fields=${["run.rank_imbalance"]}>
    ${(history, path) => html`<${Panel} title="Imbalance between ranks" unit="largest load over mean load, minus 1"
      paths=${[path]} wide>
      <${Lines} title="Imbalance between ranks" times=${history.times_s} step=${history.step_s}
        series=${[{ label: "imbalance", values: history.run.rank_imbalance, token: "accent" }]} />
    <//>`}
  <//>`;
}
