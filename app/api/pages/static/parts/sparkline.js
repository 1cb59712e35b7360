// A small chart in a row of a list. All rows have the same axes.
import { html } from "../lib/html.js";

/** Step lines over time, from zero to `most`: `series` are `[name, values]`. Gaps stay gaps. */
export function Sparkline({ title, series, most }) {
  const points = Math.max(1, ...series.map(([, values]) => values.length));
  return html`<svg class="sparkline" viewBox=${`0 0 ${points} 1`} preserveAspectRatio="none" role="img"
    aria-label=${title}>
    ${series.map(([name, values]) => html`<path key=${name} data-of=${name} d=${steps(values, most)} />`)}
  </svg>`;
}

const steps = (values, most) =>
  values
    .map((value, at) => {
      if (value == null) return "";
      const y = 0.97 - 0.94 * Math.min(1, most > 0 ? value / most : 0);
      return values[at - 1] == null ? `M${at} ${y}H${at + 1}` : `V${y}H${at + 1}`;
    })
    .join("");
