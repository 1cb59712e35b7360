// Replay: what is in the buffer by age, uses and priority, what inserts and samples wait for, and its chunks.
import { ONCE, useFeed } from "../lib/feeds.js";
import { html } from "../lib/html.js";
import { address, choose, useRoute } from "../lib/route.js";
import { own } from "../lib/series.js";
import { bytes, compact, counted, duration, known, measured, number, percent, shown } from "../lib/text.js";
import { Lines } from "../parts/chart.js";
import { wholeSpan } from "../parts/density.js";
import { Pages, Select } from "../parts/fields.js";
import { Figures } from "../parts/figures.js";
import { each, History } from "../parts/history.js";
import { State } from "../parts/names.js";
import { exact } from "../parts/numbers.js";
import { curl, Panel } from "../parts/panel.js";
import { Headline, useStatus } from "../parts/run.js";
import { Rows } from "../parts/rows.js";
import { Empty, Shown } from "../parts/states.js";
import { OfNow, TimeBar, useUnitOfNow } from "../parts/time_bar.js";
import { shareOf } from "../parts/overlays.js";

const PAGE = 1000;
const MOST_WORKERS = 50;
// The places of chunks, and the orders that each can be read in.
const PLACES = {
  sampleable: ["order", "weights", "versions", "uses"],
  reserved: ["versions"],
  archived: ["order"],
};
const ORDERS = { order: "insertion", weights: "weight", versions: "version", uses: "uses" };
const TITLES = [
  ["Chunk", "number"],
  ["Priority", "number"],
  ["Uses", "number"],
  ["Version", "number"],
  ["In samples", "number"],
  ["Size", "number"],
  ["Group or worker"],
  ["Fragments", "number"],
];

export function ReplayView({ run }) {
  const status = useStatus(run);
  const path = `v1/runs/${run}/replay`;
  const feed = useFeed(path);
  return html`<${Shown} feed=${status}>
    ${(data) =>
      html`<${Headline} status=${data} />
        ${
          feed.error?.code === "replay_not_found"
            ? html`<${NoBuffer} path=${path} />`
            : html`<${Shown} feed=${feed}>${(state) => html`<${Buffer} run=${run} path=${path} state=${state} />`}<//>`
        }`}
  <//>`;
}

function NoBuffer({ path }) {
  const command = curl(path, '{"max_chunks": 10000}', "PUT");
  return html`<${Empty} command=${command}>This run has no replay buffer. Set one up:<//>`;
}

function Buffer({ run, path, state }) {
  const grid = useFeed(`${path}/grid`);
  const unit = useUnitOfNow();
  return html`<${OfNow} />
    <${Words} state=${state} />
    <div class="grid">
      <${Panel} title="Buffer" unit=${unit()} paths=${[path]}><${Facts} state=${state} /><//>
      <${Panel} title="Retired" unit=${unit("chunks")} paths=${[path]}><${Retired} state=${state} /><//>
      <${Panel} title="Workers" unit=${unit()} paths=${[path]}><${Workers} workers=${state.workers} /><//>
    </div>
    <${Panel} title="Age and uses" unit=${unit("coloured by mean priority")} paths=${[`${path}/grid`]} wide>
      <${Shown} feed=${grid}>${(data) => html`<${Grid} data=${data} />`}<//>
    <//>
    <${TimeBar} />
    <${History} run=${run} fields=${["run.replay_age_versions", "run.replay_uses"]}>
      ${(history, asked) => html`<div class="grid charts">
        <${Panel} title="Age of samples" unit="policy versions, mean" paths=${[asked]}>
          <${Lines} title="Mean age of sampled chunks" times=${history.times_s} step=${history.step_s}
            series=${[{ label: "age", values: history.run.replay_age_versions, token: "accent" }]} />
        <//>
        <${Panel} title="Uses of retired chunks" unit=${each(history, "mean")} paths=${[asked]}>
          <${Lines} title="Mean uses of retired chunks" times=${history.times_s} step=${history.step_s}
            series=${[{ label: "uses", values: history.run.replay_uses, token: "accent" }]} />
        <//>
      </div>`}
    <//>
    <${Chunks} run=${run} path=${path} />`;
}

function Words({ state }) {
  const { inserts_blocked: inserts, samples_blocked: samples } = state.limiter;
  const lines = [];
  if (inserts !== null) lines.push(["warn", "Inserts wait", inserts.detail]);
  if (samples !== null) lines.push(["wait", "Samples wait", samples.detail]);
  if (lines.length === 0) lines.push(["good", "Open", "inserts and samples go through"]);
  return html`<ul class="words" aria-label="State of the buffer">
      ${lines.map(
        ([kind, word, text]) => html`<li key=${word}><${State} kind=${kind} word=${word} /> ${shown(text, 500)}.</li>`,
      )}
    </ul>
    <p>
      ${counted(state.sampleable_chunks, "chunk")} may be sampled, ${number(state.reserved_chunks)} are reserved.${" "}
      ${counted(state.samples_held, "sample")} in use. ${counted(state.archived_chunks, "chunk")} of former sessions
      ${" "}kept.
    </p>`;
}

function Facts({ state }) {
  const { settings, limiter } = state;
  return html`<${Figures}
    rows=${[
      ["Filled", percent(state.filled_share), `of ${counted(settings.max_chunks, "chunk")}`],
      ["Payload", bytes(state.chunk_bytes), settings.max_bytes === null ? "" : `of ${bytes(settings.max_bytes)}`],
      ["Session", number(state.session)],
      ["Policy version", number(state.policy_version)],
      ["Inserted", counted(limiter.inserts, "chunk")],
      ["Sampled", counted(limiter.samples, "chunk")],
      ["Limiter error", exact(limiter.error)],
      ["Arriving", `${measured(state.fragments_per_s)} fragments/s`],
      ["In no chunk yet", counted(state.waiting_fragments, "fragment"), bytes(state.waiting_bytes)],
      ["Mean age of samples", known(state.avg_staleness, (age) => `${measured(age)} policy versions`)],
      ["Mean uses of retired chunks", known(state.avg_reuse, measured)],
    ]}
  />`;
}

function Retired({ state }) {
  const rows = [
    ...Object.entries(state.retired_chunks).map(([reason, count]) => [shown(reason, 40), number(count)]),
    ...Object.entries(state.dropped_fragments).map(([reason, count]) => [
      `fragments dropped: ${shown(reason, 40)}`,
      number(count),
    ]),
    ...Object.entries(state.refused_fragments).map(([reason, count]) => [
      `fragments refused: ${shown(reason, 40)}`,
      number(count),
    ]),
  ];
  if (rows.length === 0) return html`<p class="quiet">Nothing was retired, dropped or refused.</p>`;
  return html`<${Figures} rows=${rows} />`;
}

function Workers({ workers }) {
  if (workers.length === 0) {
    return html`<p class="quiet">No worker sends fragments. Workers that insert some are listed here.</p>`;
  }
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Workers that send fragments">
      <table>
        <thead>
          <tr>
            <th scope="col">Worker</th>
            <th scope="col" class="number">Fragments</th>
            <th scope="col" class="number">Waiting</th>
            <th scope="col" class="number">Gaps</th>
            <th scope="col">Heard</th>
          </tr>
        </thead>
        <tbody>
          ${workers.slice(0, MOST_WORKERS).map(
            (one) => html`<tr key=${one.worker}>
              <td><code>${shown(one.worker, 40)}</code></td>
              <td class="number">${number(one.accepted_fragments)}</td>
              <td class="number">${number(one.waiting_fragments)}</td>
              <td class="number">${number(one.gaps)}</td>
              <td>${duration(one.heard_age_s)} ago</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${workers.length > MOST_WORKERS && html`<p class="quiet">${number(workers.length - MOST_WORKERS)} more.</p>`}`;
}

function Grid({ data }) {
  const { age_edges: ages, uses_edges: uses, counts, mean_priorities: priorities } = data;
  if (data.chunks === 0) return html`<p class="quiet">No chunk is in the buffer. Workers fill it with fragments.</p>`;
  const all = priorities.flat().filter((one) => one !== null);
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const rows = counts.map((_, at) => at).reverse();
  const unit = wholeSpan(uses, rows[0]) === "1" ? " use" : " uses";
  return html`${
      least === most
        ? html`<p class="quiet">Mean priority: all ${measured(most)}.</p>`
        : html`<p class="ramp">
            <span>${measured(least)}</span><i aria-hidden="true"></i><span>${measured(most)}</span> mean priority
          </p>`
    }
    <div class="scroll" tabindex="0" role="region" aria-label="Chunks by age and uses">
      <table class="cells">
        <caption class="spoken">Chunks by uses (rows) and age in policy versions (columns)</caption>
        <tbody>
          ${rows.map(
            (row) => html`<tr key=${row}>
              <th scope="row" class="number">${wholeSpan(uses, row)}${row === rows[0] && unit}</th>
              ${counts[row].map(
                (count, column) => html`<td key=${column} data-filled=${count > 0 ? "" : null}
                  style=${count > 0 ? { "--share": shareOf(priorities[row][column], [least, most]).toFixed(3) } : null}
                  title=${count > 0 ? cell(data, row, column) : null}>${count > 0 ? compact(count) : ""}</td>`,
              )}
            </tr>`,
          )}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row" class="number">age</th>
            ${ages.slice(0, -1).map((_, at) => html`<th key=${at} scope="col">${wholeSpan(ages, at)}</th>`)}
          </tr>
        </tfoot>
      </table>
    </div>
    <p class="quiet">
      Age is counted in policy versions. The numbers are chunks.${" "}
      ${
        data.looked_at < data.chunks
          ? `They are of ${number(data.looked_at)} chunks, spread evenly over all ${number(data.chunks)}.`
          : `All ${number(data.chunks)} were looked at.`
      }
    </p>`;
}

function cell({ age_edges: ages, uses_edges: uses, counts, mean_priorities: priorities }, row, column) {
  return (
    `age ${wholeSpan(ages, column)}, uses ${wholeSpan(uses, row)}: ${counted(counts[row][column], "chunk")}, ` +
    `mean priority ${measured(priorities[row][column])}`
  );
}

function Chunks({ run, path }) {
  const { query } = useRoute();
  const unit = useUnitOfNow();
  const place = own(PLACES, query.get("place")) ? query.get("place") : "sampleable";
  const sort = PLACES[place].includes(query.get("sort")) ? query.get("sort") : PLACES[place][0];
  const asked = new URLSearchParams({ limit: PAGE, place, sort });
  for (const name of ["descending", "cursor"]) if (query.get(name)) asked.set(name, query.get(name));
  const chunks = `${path}/chunks?${asked}`;
  const feed = useFeed(chunks, ONCE);
  const set = (name) => (event) => choose({ [name]: event.target.value, cursor: null });
  return html`<${Panel} title="Chunks" unit=${unit()} paths=${[chunks]} wide>
    <div class="filter">
      <${Select} title="Chunks that are" options=${Object.keys(PLACES)} value=${place} onChange=${set("place")} />
      <${Select} title="Sort by" options=${PLACES[place].map((one) => [one, ORDERS[one]])} value=${sort}
        onChange=${set("sort")} />
      <label
        ><input
          type="checkbox"
          checked=${query.get("descending") === "true"}
          onChange=${(event) => choose({ descending: event.target.checked ? "true" : null, cursor: null })}
        /> largest first</label
      >
      <button type="button" onClick=${feed.retry}>Read again</button>
    </div>
    <${Shown} feed=${feed}>${(data) => html`<${Found} run=${run} data=${data} query=${query} />`}<//>
  <//>`;
}

function Found({ run, data, query }) {
  const { chunks, cursor } = data;
  return html`
    ${chunks.length === 0 && html`<p class="quiet">No chunk is here.</p>`}
    <${Rows} label="Chunks" kind="chunk-row" titles=${TITLES} items=${chunks} id=${(one) => one.chunk} height=${32}
      draw=${(one) => html`<${Chunk} run=${run} chunk=${one} />`} />
    <${Pages} query=${query} cursor=${cursor}>${counted(chunks.length, "chunk")} on this page.<//>`;
}

// A chunk of a group that was trained on links to the group.
function Chunk({ run, chunk }) {
  const { worker, group, fragments } = chunk;
  return html`<div class="entry chunk-row" data-chunk=${chunk.chunk}>
    <span role="cell" class="number">${number(chunk.chunk)}</span>
    <span role="cell" class="number">${measured(chunk.priority)}</span>
    <span role="cell" class="number">${number(chunk.uses)}</span>
    <span role="cell" class="number">${number(chunk.version)}</span>
    <span role="cell" class="number">${number(chunk.reserved)}</span>
    <span role="cell" class="number">${bytes(chunk.payload_bytes)}</span>
    <span role="cell">
      ${
        group === null
          ? html`<code>${shown(worker, 48)}</code>`
          : html`<a data-page href=${address("groups", run, { group })}><code>${shown(group, 48)}</code></a>`
      }
    </span>
    <span role="cell" class="number">${number(fragments.length)}</span>
  </div>`;
}
