// The bar above charts over time: which time they show, of which environment, and its export.
import { timeFile } from "../exports/time.js";
import { html, useState } from "../lib/html.js";
import { choose, useRoute } from "../lib/route.js";
import { duration, shown } from "../lib/text.js";
import { moment, RANGES, showBetween, showRange, useTime, zone } from "../lib/time.js";
import { Export } from "./export.js";
import { Instead, Select } from "./fields.js";
import { environmentOf, useEnvironment } from "./history.js";

const HOUR_S = 3600; // what is shown if a field is set to a time beyond the other one

/** What to choose from: the time, and with `environments` one of these. */
export function TimeBar({ environments = [] }) {
  const time = useTime();
  const { run, query } = useRoute();
  const { range, from, to } = time;
  const [begin, end] = [from ?? Infinity, to ?? Date.now() / 1000];
  const wanted = query.get("environment");
  const write = (signal) => timeFile(signal, { run, time, wanted });
  return html`<div class="filter times" role="group" aria-label="Time">
    ${Object.entries(RANGES).map(
      ([name, [, title]]) =>
        html`<button key=${name} type="button" aria-pressed=${name === range} onClick=${() => showRange(name)}>
          ${title}
        </button>`,
    )}
    <${Moment} title="From" value=${from} set=${(at) => showBetween(at, at < end ? end : at + HOUR_S)} />
    <${Moment} title="To" value=${to} set=${(at) => showBetween(at > begin ? begin : at - HOUR_S, at)} />
    ${range === null && html`<button type="button" onClick=${() => showRange("1h")}>Clear</button>`}
    ${environments.length > 0 && html`<${Environments} environments=${environments} wanted=${wanted} />`}
    <${Export} label="Export this time as HTML" write=${write} />
    <span class="quiet">
      ${range === null ? `${moment.format(from * 1000)} to ${moment.format(to * 1000)}, in` : "Times are in"} ${zone}.
      Drag over a chart to zoom in.
      ${range === "1h" && " A younger run is shown from its start, and over at least two minutes."}
      ${time.isLive && ` The newest value changes until its ${duration(time.step)} have passed.`}
    </span>
  </div>`;
}

/** Says that what follows is of now, if the reader has brushed another time. */
export function OfNow() {
  if (useTime().isLive) return null;
  return html`<p class="notice">Figures of now. The time that was brushed applies to the charts.</p>`;
}

/** The unit of a panel of now, which says so if the reader has brushed another time. */
export function useUnitOfNow() {
  const { isLive } = useTime();
  return (unit) => (isLive ? unit : [unit, "now"].filter(Boolean).join(", "));
}

// A time as the browser's field has it: local, without a zone.
function local(seconds) {
  const at = new Date(seconds * 1000);
  return new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/**
 * A field for a moment in seconds, which is null if it is not set. `set` hears of another one on Enter, or when the
 * field loses the focus: each digit alone makes a date, too. `clear` hears if the reader empties it.
 */
export function Moment({ title, value, set, clear }) {
  const [typed, setTyped] = useState(null);
  const apply = ({ target }) => {
    if (typed === null) return;
    setTyped(null);
    const at = new Date(target.value).getTime() / 1000;
    if (at > 0) set(at);
    else if (target.value === "" && !target.validity.badInput) clear?.();
  };
  return html`<label
    >${title} <input type="datetime-local" step="1" value=${typed ?? (value === null ? "" : local(value))}
      onInput=${(event) => setTyped(event.target.value)} onBlur=${apply}
      onKeyDown=${(event) => event.key === "Enter" && apply(event)}
  /></label>`;
}

function Environments({ environments, wanted }) {
  const chosen = useEnvironment(environments);
  const isUnknown = wanted && environmentOf(environments, wanted) === undefined;
  return html`${
      isUnknown && html`<${Instead} kind="environment" wanted=${wanted} name=${chosen.name} />`
    }<${Select} title="Environment" options=${environments.map((one) => [one.id, shown(one.name, 48)])}
    value=${chosen.id} onChange=${(event) => choose({ environment: event.target.value })} />`;
}
