// A heat map of counts over time, in one hue. Where nothing is known, it stays blank.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { useStill } from "../lib/offline.js";
import { number } from "../lib/text.js";
import { moment } from "../lib/time.js";
import { colour, redrawn } from "./redraw.js";
import { Ends, StillMap } from "./still.js";

const ROW = 18;

/**
 * Draw counts over spans of `step` seconds from `times` on. `rows` are `{label, values}` from top to bottom, `noun`
 * names what is counted. The line below says the count under the pointer.
 */
export function Heat({ title, times, step, rows, noun }) {
  const isStill = useStill();
  const canvas = useRef(null);
  const [at, setAt] = useState(null);
  const most = rows.reduce((one, row) => row.values.reduce((other, value) => Math.max(other, value ?? 0), one), 0);
  useEffect(() => redrawn(canvas.current, () => paint(canvas.current, times.length, rows, most)));
  const point = (event) => {
    const box = event.target.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * times.length);
    const row = Math.floor((event.clientY - box.top) / ROW);
    setAt(rows[row] && column in times ? [column, row] : null);
  };
  return html`<div class="heat">
    <ul class="heat-labels" aria-hidden="true">
      ${rows.map((row) => html`<li key=${row.label}>${row.label}</li>`)}
    </ul>
    ${
      isStill
        ? html`<${StillMap} title=${title} height=${rows.length * ROW}
            columns=${times.map((_, column) => rows.map(({ values }) => share(values[column], most)).reverse())} />`
        : html`<canvas
              ref=${canvas}
              role="img"
              aria-label=${title}
              style=${{ height: `${rows.length * ROW}px` }}
              onPointerMove=${point}
              onPointerLeave=${() => setAt(null)}
            ></canvas>`
    }
    <${Ends} times=${times} step=${step} />
    <p class="heat-said">
      ${
        at === null
          ? html`<span class="ramp"><span>0</span><i aria-hidden="true"></i><span>${number(most)}</span> ${noun}</span>`
          : said(times[at[0]], rows[at[1]], rows[at[1]].values[at[0]], noun)
      }
    </p>
  </div>`;
}

const share = (value, most) => (value === null ? null : most > 0 ? value / most : 0);

function said(time, row, value, noun) {
  const what = value === null ? "not known" : `${number(value)} ${noun}`;
  return `${moment.format(time * 1000)}, ${row.label}: ${what}`;
}

function paint(canvas, columns, rows, most) {
  const scale = devicePixelRatio;
  const [width, height] = [canvas.clientWidth, rows.length * ROW];
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const [none, full] = [colour("paper-2"), colour("accent")];
  for (const [row, { values }] of rows.entries()) {
    for (let from = 0, to = 1; from < columns; from = to, to += 1) {
      while (to < columns && values[to] === values[from]) to += 1;
      if (values[from] === null) continue;
      const left = Math.floor((from / columns) * width);
      const box = [left, row * ROW, Math.ceil((to / columns) * width) - left, ROW - 1];
      context.globalAlpha = 1;
      context.fillStyle = none;
      context.fillRect(...box);
      context.globalAlpha = most > 0 ? values[from] / most : 0;
      context.fillStyle = full;
      context.fillRect(...box);
    }
  }
}
