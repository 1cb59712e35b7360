// The history of a run over the time that the reader chose.
import { ONCE, useFeed } from "../lib/feeds.js";
import { html } from "../lib/html.js";
import { choose, useRoute } from "../lib/route.js";
import { growing } from "../lib/series.js";
import { duration, shown } from "../lib/text.js";
import { RANGES, showBetween, showRange, useTime, zone } from "../lib/time.js";
import { Select } from "./fields.js";
import { Shown } from "./states.js";

const SPAN_S = 10; // a history gets a new value this often
const SLOW_S = 60;
const SHORT_S = 60; // spans that change while they are looked at

/**
 * The path of what is known of the time that the reader chose, with `more` parameters and spans of at least
 * `least` seconds, and how often to ask for it.
 */
export function useTimePath(place, more = {}, least = 0) {
  const { from, to, step: shortest, isLive } = useTime();
  const step = Math.max(shortest, least);
  const asked = new URLSearchParams();
  if (from !== null) asked.set("from", from);
  if (to !== null) asked.set("to", to);
  asked.set("step_s", step);
  for (const [name, value] of Object.entries(more)) if (value !== undefined) asked.set(name, value);
  return [`${place}?${asked}`, isLive ? (step <= SHORT_S ? SPAN_S : SLOW_S) : ONCE];
}

/**
 * Ask for series of the history and show them as `children(history, path)`. `fields` names the series, and
 * `environment` the only environment.
 */
export function History({ run, fields, environment, least, children }) {
  const [path, every] = useTimePath(`v1/runs/${run}/history`, { environment, fields: fields.join(",") }, least);
  const feed = useFeed(path, every, { growth: every === ONCE ? null : growing });
  return html`<${Shown} feed=${feed}>${(history) => children(history, path)}<//>`;
}

/** What to choose from: the time, and with `environments` one of these. */
export function TimeBar({ environments = [] }) {
  const { range, from, to } = useTime();
  return html`<div class="filter times" role="group" aria-label="Time">
    ${Object.entries(RANGES).map(
      ([name, [, title]]) =>
        html`<button key=${name} type="button" aria-pressed=${name === range} onClick=${() => showRange(name)}>
          ${title}
        </button>`,
    )}
    <${Moment} title="From" value=${from} set=${(at) => at < (to ?? now()) && showBetween(at, to ?? now())} />
    <${Moment} title="To" value=${to} set=${(at) => at > (from ?? at - 3600) && showBetween(from ?? at - 3600, at)} />
    ${range === null && html`<button type="button" onClick=${() => showRange("1h")}>Clear</button>`}
    ${environments.length > 0 && html`<${Environments} environments=${environments} />`}
    <span class="quiet">Times are of ${zone}. Drag over a chart to look closer.</span>
  </div>`;
}

const now = () => Date.now() / 1000;

// A time as the browser's field has it: local, without a zone.
function local(seconds) {
  const at = new Date(seconds * 1000);
  return new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

function Moment({ title, value, set }) {
  const change = (event) => {
    const at = new Date(event.target.value).getTime() / 1000;
    if (Number.isFinite(at) && at > 0) set(at);
  };
  return html`<label
    >${title} <input type="datetime-local" step="1" value=${value === null ? "" : local(value)} onChange=${change}
  /></label>`;
}

/** The environment in the address, or the first; undefined if there is none. */
export function useEnvironment(environments) {
  const wanted = useRoute().query.get("environment");
  return environments.find((one) => String(one.id) === wanted || one.name === wanted) ?? environments[0];
}

function Environments({ environments }) {
  const chosen = useEnvironment(environments);
  return html`<${Select} title="Environment" options=${environments.map((one) => [one.id, shown(one.name, 48)])}
    value=${chosen.id} onChange=${(event) => choose({ environment: event.target.value })} />`;
}

/** The unit of counts in a span. */
export const each = (history, noun) => `${noun} in ${duration(history.step_s)}`;
