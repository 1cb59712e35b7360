// The numbers behind a chart as a table, which the reader unfolds.
import { html } from "../lib/html.js";
import { number } from "../lib/text.js";

const MOST = 5000;

/** `columns` are titles; of each row, the first cell names it. */
export function Numbers({ label, columns, rows }) {
  return html`<details class="numbers">
    <summary>${label}: numbers</summary>
    ${rows.length > MOST && html`<p class="notice">${number(MOST)} of ${number(rows.length)} rows.</p>`}
    <div class="scroll" tabindex="0" role="region" aria-label=${`${label}: numbers`}>
      <table>
        <thead>
          <tr>
            ${columns.map((title, at) => html`<th key=${at} scope="col" class=${at > 0 ? "number" : null}>${title}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${rows.slice(0, MOST).map(
            ([name, ...cells], at) => html`<tr key=${at}>
              <th scope="row">${name}</th>
              ${cells.map((cell, column) => html`<td key=${column} class="number">${cell}</td>`)}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </details>`;
}
