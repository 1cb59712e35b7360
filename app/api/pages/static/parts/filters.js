// What the list of groups can be filtered by: fields, and chips for the filters that are set. They are in the address.
import { html, useState } from "../lib/html.js";
import { choose, useRoute } from "../lib/route.js";
import { shown } from "../lib/text.js";
import { isDate, moment, useTime } from "../lib/time.js";
import { DROP_REASONS } from "./drop_reasons.js";
import { Select, Typed } from "./fields.js";
import { environmentOf } from "./history.js";
import { Moment } from "./time_bar.js";

const STATES = ["queued", "buffered", "leased", "kept", "delivered", "dropped"];
const DROPPED = "Reason for the drop";
// The name in the address and in the API, and how its field is.
const FIELDS = [
  ["item", "Item", { type: "search" }],
  ["score_min", "Minimum mean score", { type: "number", step: "any" }],
  ["score_max", "Maximum mean score", { type: "number", step: "any" }],
  ["step_min", "First step", { type: "number", min: 0, step: 1 }],
  ["step_max", "Last step", { type: "number", min: 0, step: 1 }],
  ["staleness_min", "Minimum staleness", { type: "number", min: 0, step: 1 }],
];
const TIMES = [
  ["received_from_s", "Received from"],
  ["received_to_s", "Received before"],
];
const TITLES = new Map([["state", "State"], ["environment", "Environment"], ["dropped", DROPPED], ...FIELDS, ...TIMES]);

/** The filters of the list, by name: those in the address. Without times of their own, the time that was brushed. */
export function useFilters() {
  const { query } = useRoute();
  const time = useTime();
  const own = Object.fromEntries([...TITLES.keys()].flatMap((name) => given(query, name)));
  const isTimed = TIMES.some(([name]) => name in own);
  if (isTimed || time.range !== null) return own;
  return { ...own, received_from_s: String(time.from), received_to_s: String(time.to) };
}

const given = (query, name) => (query.get(name) ? [[name, query.get(name)]] : []);

/** The environments to choose from, and the one that is wanted: its id, or its name, which the run may not know. */
export function environmentChoice(environments, wanted) {
  const known = [["", "any"], ["none", "groups without one"]].concat(
    environments.map((one) => [String(one.id), shown(one.name, 64)]),
  );
  const value = String(environmentOf(environments, wanted)?.id ?? wanted);
  const isKnown = known.some(([one]) => one === value);
  return { value, options: isKnown ? known : [...known, [value, `named ${shown(value, 64)}`]] };
}

/** A filter in words. */
export function wordsOf([name, value]) {
  const isTime = TIMES.some(([time]) => time === name) && isDate(Number(value));
  return `${TITLES.get(name)}: ${isTime ? moment.format(Number(value) * 1000) : shown(value, 48)}`;
}

/** Remove all filters of the list. */
export const clearFilters = () =>
  choose(Object.fromEntries([...TITLES.keys(), "from", "to", "cursor"].map((name) => [name, null])));

/** Set some filters. A time of receipt takes the place of the time that was brushed. */
function set(filters, changes) {
  const isTime = Object.keys(changes).some((name) => TIMES.some(([time]) => time === name));
  const times = Object.fromEntries(TIMES.map(([name]) => [name, filters[name] ?? null]));
  choose({ ...(isTime ? { ...times, from: null, to: null } : {}), ...changes, cursor: null });
}

/** The filters that are set, each with a button that removes it. */
export function Chips({ filters, environments }) {
  const all = Object.entries(filters);
  if (all.length === 0) return null;
  const inWords = ([name, value]) =>
    wordsOf([name, (name === "environment" && environmentOf(environments, value)?.name) || value]);
  return html`<ul class="chips" aria-label="Filters that are set">
    ${all.map(
      ([name, value]) => html`<li key=${name}>
        <button type="button" class="small" aria-label=${`Remove the filter ${inWords([name, value])}`}
          onClick=${() => set(filters, { [name]: null })}>
          <bdi>${inWords([name, value])}</bdi> <span aria-hidden="true">×</span>
        </button>
      </li>`,
    )}
    ${all.length > 1 && html`<li><button type="button" class="small" onClick=${clearFilters}>Remove all</button></li>`}
  </ul>`;
}

/** Fields to filter by. On a phone, a button shows them. */
export function Filters({ filters, environments }) {
  const [isOpen, setOpen] = useState(false);
  const change = (name) => (event) => set(filters, { [name]: event.target.value });
  return html`<button type="button" class="small unfold" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
      Filters
    </button>
    <div class=${isOpen ? "filter" : "filter folded"}>
      <${Select} title="State" options=${[["", "any"], ...STATES]} value=${filters.state ?? ""}
        onChange=${change("state")} />
      <${Select} title="Environment" ...${environmentChoice(environments, filters.environment ?? "")}
        onChange=${change("environment")} />
      <${Select} title=${DROPPED} options=${[["", "any"], ...DROP_REASONS]} value=${filters.dropped ?? ""}
        onChange=${change("dropped")} />
      ${FIELDS.map(
        ([name, title, field]) =>
          html`<label key=${name}
            >${title} <${Typed} ...${field} name=${name} value=${filters[name] ?? ""} onChange=${change(name)}
          /></label>`,
      )}
      ${TIMES.map(([name, title]) => {
        const seconds = Number(filters[name]);
        return html`<${Moment} key=${name} title=${title} value=${isDate(seconds) ? seconds : null}
          set=${(at) => set(filters, { [name]: at })} clear=${() => set(filters, { [name]: null })} />`;
      })}
    </div>`;
}
