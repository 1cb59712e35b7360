// The items of a curriculum: sorted or searched, and one of them in full.
import { ONCE, useFeed } from "../lib/feeds.js";
import { html } from "../lib/html.js";
import { useKeys } from "../lib/keys.js";
import { address, choose, close, useRoute } from "../lib/route.js";
import { own } from "../lib/series.js";
import { counted, duration, known, measured, number, shown, shownLines } from "../lib/text.js";
import { Pages, Select, Typed } from "../parts/fields.js";
import { Figures } from "../parts/figures.js";
import { Panel } from "../parts/panel.js";
import { Rows } from "../parts/rows.js";
import { Empty, Shown } from "../parts/states.js";

const PAGE = 1000;
const TITLES = [
  ["Item"],
  ["Bin", "number"],
  ["Mean reward", "number"],
  ["Pass rate", "number"],
  ["Observations", "number"],
  ["Category"],
];
const SORTS = {
  mean_reward: "mean reward",
  posterior: "pass rate",
  signal: "signal of the last group",
  last: "reward of the last group",
  drawn: "last handed out",
};

export function Items({ run, path, curriculum }) {
  const { query } = useRoute();
  const opened = query.get("item") || null;
  const asked = new URLSearchParams({ limit: PAGE });
  const names = query.get("search") ? ["search", "cursor"] : ["sort", "descending", "bin", "cursor"];
  for (const name of names) if (query.get(name)) asked.set(name, query.get(name));
  const items = `${path}/items?${asked}`;
  const feed = useFeed(items, ONCE);
  if (opened !== null) return html`<${Item} run=${run} path=${path} name=${opened} />`;
  return html`<${Panel} title="Items" paths=${[items]} wide>
    <${Filters} query=${query} bins=${curriculum.bins.length} refresh=${feed.retry} />
    <${Shown} feed=${feed}>${(data) => html`<${Found} run=${run} data=${data} query=${query} />`}<//>
  <//>`;
}

function Filters({ query, bins, refresh }) {
  const set = (name) => (event) => choose({ [name]: event.target.value, cursor: null });
  const isSearch = Boolean(query.get("search"));
  const sort = own(SORTS, query.get("sort")) ? query.get("sort") : "mean_reward";
  return html`<div class="filter">
    <label
      >Key contains <${Typed} type="search" name="search" value=${query.get("search") ?? ""} onChange=${set("search")}
    /></label>
    <${Select} title="Sort by" options=${Object.entries(SORTS)} value=${sort} disabled=${isSearch}
      onChange=${(event) => choose({ sort: event.target.value, bin: null, cursor: null })} />
    <label
      ><input
        type="checkbox"
        disabled=${isSearch}
        checked=${query.get("descending") === "true"}
        onChange=${(event) => choose({ descending: event.target.checked ? "true" : null, cursor: null })}
      /> largest first</label
    >
    <${Select} title="Bin" options=${[["", "any"], ...Array.from({ length: bins }, (_, at) => at)]}
      value=${query.get("bin") ?? ""} disabled=${isSearch || sort !== "mean_reward"} onChange=${set("bin")} />
    <button type="button" onClick=${refresh}>Read again</button>
  </div>`;
}

function Found({ run, data, query }) {
  const { items, cursor } = data;
  const open = ({ key }) => address("curriculum", run, { ...Object.fromEntries(query), item: key });
  return html`
    ${
      items.length === 0 &&
      html`<${Empty}>
        ${
          cursor === null
            ? "There is no such item. Search for less, or choose any bin."
            : "None on this page. There may be some on the next one."
        }
      <//>`
    }
    <${Rows} label="Items" kind="item-row" titles=${TITLES} items=${items} id=${(item) => item.key} height=${32}
      draw=${(item) => html`<${Row} item=${item} href=${open(item)} />`} />
    <${Pages} query=${query} cursor=${cursor}>${counted(items.length, "item")} on this page.<//>`;
}

function Row({ item, href }) {
  return html`<div class="entry item-row" data-item=${shown(item.key, 80)}>
    <span role="cell"
      ><a data-page data-stay href=${href}><code>${shown(item.key, 80)}</code></a></span
    >
    <span role="cell" class="number">${item.bin}</span>
    <span role="cell" class="number">${known(item.mean_reward, measured)}</span>
    <span role="cell" class="number">${measured(item.pass_rate)}</span>
    <span role="cell" class="number">${number(item.count)}</span>
    <span role="cell">${known(item.category, (category) => shown(category, 60))}</span>
  </div>`;
}

function Item({ run, path, name }) {
  const its = `${path}/items/${encodeURIComponent(name)}`;
  const feed = useFeed(its);
  const back = () => close({ item: null });
  useKeys({ Escape: ["back to the list", back] });
  return html`<${Panel} title="Item" paths=${[its]} wide>
    <p class="filter">
      <button type="button" onClick=${back}>All items</button>
      <code>${shown(name, 200)}</code>
      <a data-page href=${address("groups", run, { item: name })}>its groups</a>
    </p>
    <${Shown} feed=${feed}>${(item) => html`<${Facts} item=${item} />`}<//>
  <//>`;
}

function Facts({ item }) {
  return html`<div class="pair">
    <${Figures}
      rows=${[
        ["Mean reward", known(item.mean_reward, measured), item.count === 0 && item.prior !== null ? "its prior" : ""],
        ["Pass rate", measured(item.pass_rate), `passed ${measured(item.passed)}, failed ${measured(item.failed)}`],
        ["Observations", number(item.count)],
        ["Bin", item.bin, "0 is the easiest"],
        ["Signal of its last group", measured(item.signal)],
        ["Category", known(item.category, (category) => shown(category, 80))],
        ["Last handed out", item.drawn === 0 ? "never" : `by sample ${number(item.drawn)}`],
        ["In flight", item.in_flight_s === 0 ? "no" : `for another ${duration(item.in_flight_s)}`],
      ]}
    />
    <div>
      <h3>Mean rewards of its last groups</h3>
      <${Marks} values=${item.history} />
      ${
        item.metadata !== null &&
        html`<h3>Metadata</h3>
          <pre tabindex="0" aria-label="Metadata">${shownLines(JSON.stringify(item.metadata, null, 1), 8000)}</pre>`
      }
    </div>
  </div>`;
}

function Marks({ values }) {
  if (values.length === 0) return html`<p class="quiet">No reward was reported yet.</p>`;
  const [least, most] = [Math.min(0, ...values), Math.max(0, ...values)];
  const height = (value) => (most > least ? Math.abs(value) / (most - least) : 0);
  return html`<div class="marks">
    <svg viewBox=${`0 0 ${values.length} 1`} preserveAspectRatio="none" role="img"
      aria-label=${`${counted(values.length, "group")}, oldest first, the last ${measured(values.at(-1))}`}>
      ${values.map(
        (value, at) => html`<rect key=${at} x=${at + 0.1} width="0.8" height=${height(value)}
          y=${(most - Math.max(0, value)) / (most - least || 1)}><title>${measured(value)}</title></rect>`,
      )}
    </svg>
    <p class="quiet">Oldest first, from ${measured(least)} to ${measured(most)}. Last: ${measured(values.at(-1))}.</p>
  </div>`;
}
