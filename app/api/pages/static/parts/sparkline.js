// A small chart in a row of a list. All rows have the same axes.
import { html } from "../lib/html.js";
import { steps } from "./still.js";

/** Step lines over time, from zero to `most`: `series` are `[name, values]`. Gaps stay gaps. */
export function Sparkline({ title, series, most }) {
  const points = Math.max(1, ...series.map(([, values]) => values.length));
  const height = (value) => 0.03 + 0.94 * Math.min(1, most > 0 ? value / most : 0);
  return html`<svg class="sparkline" viewBox=${`0 0 ${points} 1`} preserveAspectRatio="none" role="img"
    aria-label=${title}>
    ${series.map(([name, values]) => html`<path key=${name} data-of=${name} d=${steps(values, height)} />`)}
  </svg>`;
}
