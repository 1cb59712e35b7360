// Figures of a run, and bars with a zero baseline.
import { html } from "../lib/html.js";

/** A list of figures: `[[what, value, note], …]`. */
export function Figures({ rows }) {
  return html`<dl class="figures">
    ${rows.map(
      ([what, value, note]) => html`<div key=${what}>
        <dt>${what}</dt>
        <dd>${value}${note && html` <span class="quiet">${note}</span>`}</dd>
      </div>`,
    )}
  </dl>`;
}

/** The length of a bar that ends at `value`, where `most` is the right end. */
export const width = (value, most) => `${most > 0 ? Math.min(100, (100 * value) / most) : 0}%`;

/** A bar from zero. `most` is the value at its right end. */
export function Bar({ value, most, hue = null }) {
  return html`<span class="track" aria-hidden="true"
    ><span class="fill" data-hue=${hue} style=${{ width: width(value, most) }}></span
  ></span>`;
}

/** A share that was got, against what was promised (the tick) and the band from minimum to maximum. */
export function Bullet({ got, promised, limit, most, hue }) {
  const band = { left: width(promised, most), right: `calc(100% - ${width(limit ?? most, most)})` };
  return html`<span class="track bullet" aria-hidden="true">
    ${(promised > 0 || limit !== null) && html`<span class="band" style=${band}></span>`}
    <span class="fill" data-hue=${hue} style=${{ width: width(got ?? 0, most) }}></span>
    ${promised > 0 && html`<span class="tick" style=${{ left: width(promised, most) }}></span>`}
  </span>`;
}
