// Counts or probabilities of bins, one row for each, as bars from zero on one axis.
import { html } from "../lib/html.js";
import { width } from "./figures.js";

/**
 * `rows` are `{label, value, text}`, and `reference` for a tick beside the bar. `most` is the value at the right end.
 */
export function Bins({ rows, most }) {
  return html`<dl class="bins">
    ${rows.map(
      (row) => html`<div key=${row.label}>
        <dt>${row.label}</dt>
        <dd class="track bullet" aria-hidden="true">
          <span class="fill" style=${{ width: width(row.value, most) }}></span>
          ${
            row.reference !== undefined &&
            html`<span class="tick" style=${{ left: width(row.reference, most) }}></span>`
          }
        </dd>
        <dd class="number">${row.text}</dd>
      </div>`,
    )}
  </dl>`;
}
