// What the list of groups can be filtered by: fields, and chips for the filters that are set. They are in the address.
import { html } from "../lib/html.js";
import { choose } from "../lib/route.js";
import { shown } from "../lib/text.js";
import { moment } from "../lib/time.js";
import { Select } from "./fields.js";
import { Moment } from "./time_bar.js";

const STATES = ["queued", "buffered", "leased", "kept", "delivered", "dropped"];
// The name in the address and in the API, and how its field is.
const FIELDS = [
  ["environment", "Environment", { type: "search" }],
  ["item", "Item", { type: "search" }],
  ["score_min", "Minimum mean score", { type: "number", step: "any" }],
  ["score_max", "Maximum mean score", { type: "number", step: "any" }],
  ["step_min", "First step", { type: "number", min: 0, step: 1 }],
  ["step_max", "Last step", { type: "number", min: 0, step: 1 }],
  ["staleness_min", "Minimum staleness", { type: "number", min: 0, step: 1 }],
  ["dropped", "Reason for the drop", { type: "search" }],
];
const TIMES = [
  ["received_from_s", "Received from"],
  ["received_to_s", "Received before"],
];
const TITLES = new Map([["state", "State"], ...FIELDS, ...TIMES]);

/** The filters that are set in the address, by name. */
export const filtersOf = (query) => Object.fromEntries([...TITLES.keys()].flatMap((name) => given(query, name)));

const given = (query, name) => (query.get(name) ? [[name, query.get(name)]] : []);

/** A filter in words. */
export function wordsOf([name, value]) {
  const isTime = TIMES.some(([time]) => time === name) && Number(value) > 0;
  return `${TITLES.get(name)}: ${isTime ? moment.format(Number(value) * 1000) : shown(value, 48)}`;
}

/** Remove all filters of the list. */
export const clearFilters = () =>
  choose(Object.fromEntries([...TITLES.keys(), "cursor"].map((name) => [name, null])));

/** Fields to filter by. */
export function Filters({ query }) {
  const set = (name) => (event) => choose({ [name]: event.target.value, cursor: null });
  return html`<div class="filter">
    <${Select} title="State" options=${[["", "any"], ...STATES]} value=${query.get("state") ?? ""}
      onChange=${set("state")} />
    ${FIELDS.map(
      ([name, title, field]) =>
        html`<label key=${name}
          >${title} <input ...${field} name=${name} value=${query.get(name) ?? ""} onChange=${set(name)}
        /></label>`,
    )}
    ${TIMES.map(([name, title]) => {
      const change = (seconds) => choose({ [name]: seconds, cursor: null });
      const seconds = Number(query.get(name));
      return html`<${Moment} key=${name} title=${title} value=${seconds > 0 ? seconds : null} set=${change}
        clear=${() => change(null)} />`;
    })}
  </div>`;
}
