// Charts without a script, for files: the same series as on the page, as SVG in the colours of the reader's theme.
import { html } from "../lib/html.js";
import { mark } from "../lib/text.js";
import { moment } from "../lib/time.js";
import { DASHES } from "./names.js";

const LEVELS = 16; // tints of a map

/** The path of step lines. `height(value)` is from 0 at the bottom to 1. Gaps stay gaps. */
export const steps = (values, height) =>
  values
    .map((value, at) => {
      if (value == null) return "";
      const y = round(1 - height(value));
      return values[at - 1] == null ? `M${at} ${y}H${at + 1}` : `V${y}H${at + 1}`;
    })
    .join("");

const round = (value) => Math.round(value * 1e4) / 1e4;

/** As `Lines` of a chart. */
export function StillLines({ title, times, step, series, band = null, most = null }) {
  const all = [...(band ?? []), ...series.map((one) => one.values)].flat().filter((value) => value !== null);
  const bottom = all.reduce((one, other) => Math.min(one, other), 0);
  const top = most ?? (all.reduce((one, other) => Math.max(one, other), 0) || 1);
  const height = (value) => 0.01 + 0.98 * Math.min(1, (value - bottom) / (top - bottom)); // no line is cut at an edge
  return html`<div class="density">
    <div class="scale quiet" aria-hidden="true"><span>${mark(top)}</span><span>${mark(bottom)}</span></div>
    <${Picture} title=${title} columns=${times.length}>
      ${band && html`<path class="band" style=${{ fill: `var(--${series[0].token})` }} d=${area(...band, height)} />`}
      ${series.map(
        (one) => html`<path key=${one.label} class="steps" style=${{ stroke: `var(--${one.token})` }}
          stroke-dasharray=${DASHES[one.dash ?? 0].join(" ") || null} d=${steps(one.values, height)} />`,
      )}
    <//>
    <${Ends} times=${times} step=${step} />
  </div>`;
}

/** Where spans of `step` seconds begin and end. */
export function Ends({ times, step }) {
  if (times.length === 0) return null;
  return html`<div class="ends quiet">
    <span>${moment.format(times[0] * 1000)}</span><span>${moment.format((times.at(-1) + step) * 1000)}</span>
  </div>`;
}

/** The place between two series, where both are known. */
const area = (lower, upper, height) =>
  lower
    .map((low, at) => {
      if (low === null || upper[at] === null) return "";
      const [bottom, top] = [round(1 - height(low)), round(1 - height(upper[at]))];
      return `M${at} ${top}H${at + 1}V${bottom}H${at}z`;
    })
    .join("");

/**
 * A map of `columns` with cells from the bottom to the top. Each is a share from 0 to 1, which is its tint; null is
 * blank. `lines` are `[name, path]` above it, `height` is in pixels.
 */
export function StillMap({ title, columns, lines = [], height = 144 }) {
  const rows = Math.max(1, ...columns.map((cells) => cells.length));
  const paths = new Map();
  columns.forEach((cells, at) =>
    cells.forEach((share, row) => {
      if (share === null) return;
      const level = Math.ceil(share * LEVELS);
      const top = round(1 - (row + 1) / rows);
      paths.set(level, `${paths.get(level) ?? ""}M${at} ${top}h1v${round(1 / rows)}h-1z`);
    }),
  );
  return html`<${Picture} title=${title} columns=${columns.length} height=${height}>
    ${[...paths].map(
      ([level, d]) => html`<path key=${level} class=${level > 0 ? "tint" : "none"}
        fill-opacity=${level > 0 ? round(level / LEVELS) : 1} d=${d} />`,
    )}
    ${lines.map(([name, d]) => html`<path key=${name} class="steps" data-of=${name} d=${d} />`)}
  <//>`;
}

function Picture({ title, columns, height = 144, children }) {
  return html`<svg class="picture" viewBox=${`0 0 ${Math.max(1, columns)} 1`} preserveAspectRatio="none" role="img"
    aria-label=${title} style=${{ height: `${height}px` }}>${children}</svg>`;
}
