// The numbers behind a chart as a table, which the reader unfolds.
import { html } from "../lib/html.js";
import { number, scaled, shown } from "../lib/text.js";
import { moment } from "../lib/time.js";

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
            ${columns.map(
              (title, at) => html`<th key=${at} scope="col" class=${at > 0 ? "number" : null}>${title}</th>`,
            )}
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

/** The series of an answer of the history, by their names in the API. */
export function SeriesNumbers({ label, times, series }) {
  const columns = columnsOf(series);
  const rows = times.map((time, at) => [
    html`<time datetime=${new Date(time * 1000).toISOString()}>${moment.format(time * 1000)}</time>`,
    ...columns.map(([, values]) => exact(values[at])),
  ]);
  const titles = ["Begin of the span", ...columns.map(([name]) => name)];
  return html`<${Numbers} label=${label} columns=${titles} rows=${rows} />`;
}

const columnsOf = (series, prefix = "") =>
  Object.entries(series ?? {}).flatMap(([name, values]) => {
    if (!Array.isArray(values)) return columnsOf(values, `${prefix}${name}.`);
    if (Array.isArray(values[0])) return columnsOf({ ...values }, `${prefix}${name}.`);
    return values.length > 0 ? [[shown(prefix + name, 80), values]] : [];
  });

const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });

/** A number of the API: integers with all digits, others with six. */
export const exact = (value) =>
  value == null ? "–" : Number.isSafeInteger(value) ? number(value) : scaled(value, 6, precise);
