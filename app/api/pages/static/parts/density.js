// How a value was distributed over time: times × values. The stronger a bin, the more groups it has. Lines: quantiles.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { useStill } from "../lib/offline.js";
import { counted, mark, measured, number } from "../lib/text.js";
import { moment } from "../lib/time.js";
import { clock } from "./chart.js";
import { isLog } from "./histogram.js";
import { colour, redrawn } from "./redraw.js";
import { StillMap, steps as stepPath } from "./still.js";

const HEIGHT = 144;
const ERROR = 0.02; // of a value of the API, and some more
const DAY_S = 86400;
const FAINTEST = 0.12;
const DASHES = { p10: [2, 2], p50: [], p90: [2, 2] };
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/**
 * Draw `counts` (of each time, the groups by bin between `edges`) over spans of `step` seconds from `times` on.
 * `quantiles` are series at the moments of `quantiles.times`, and `steps` has the step of the run then. `isWhole`: the
 * values are whole numbers. `open(time, bin)` opens the groups of a bin; null if they cannot be found by it.
 */
export function DensityMap({ edges, counts, ...shown }) {
  if (edges.length === 0) return html`<p class="quiet">No data for this time.</p>`;
  const bins = shown.isWhole ? wholeBins(edges, counts) : { edges, counts };
  return html`<${Bins} ...${shown} ...${bins} />`;
}

/** Bins of whole numbers, from those of the API, which knows large values to one percent. A bin ends below its edge. */
function wholeBins(edges, counts) {
  const leasts = edges.slice(0, -1).map((edge) => Math.ceil(edge * (1 - ERROR)));
  const whole = [...new Set(leasts)];
  const most = Math.max(Math.floor(edges.at(-1) * (1 + ERROR)), whole.at(-1));
  const joined = counts.map((column) =>
    whole.map((least) => column.reduce((sum, count, bin) => (leasts[bin] === least ? sum + count : sum), 0)),
  );
  return { edges: [...whole, most + 1], counts: joined };
}

/** The whole numbers in a bin, in words. */
export const wholeSpan = (edges, at) =>
  edges[at + 1] - edges[at] === 1 ? number(edges[at]) : `${number(edges[at])} to ${number(edges[at + 1] - 1)}`;

function Bins({ title, times, step, edges, counts, quantiles, steps, isWhole = false, open }) {
  const isStill = useStill();
  const canvas = useRef(null);
  const [at, setAt] = useState(null);
  const most = Math.max(1, ...counts.map((bins) => Math.max(0, ...bins)));
  const bins = edges.length - 1;
  useEffect(() => {
    const redraw = () => draw(canvas.current, { times, edges, counts, quantiles, isWhole, most, at });
    return redrawn(canvas.current, redraw);
  });
  const bounded = ([time, bin]) => [
    Math.max(0, Math.min(times.length - 1, time)),
    Math.max(0, Math.min(bins - 1, bin)),
  ];
  const placeOf = (event) => {
    const { left, top, width, height } = canvas.current.getBoundingClientRect();
    const across = ((event.clientX - left) / width) * times.length;
    const up = (1 - (event.clientY - top) / height) * bins;
    return bounded([Math.floor(across), Math.floor(up)]);
  };
  const press = (event) => {
    if (event.key === "Enter" && at !== null) open?.(...at);
    else if (event.key === "Escape") setAt(null);
    else if (event.key in MOVES) {
      const [across, up] = MOVES[event.key];
      const [time, bin] = at ?? [times.length - 1, 0];
      setAt(bounded([time + across, bin + up]));
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const first = steps[0] ?? null; // of a young run, nothing is known of its first times
  const last = steps.findLast((step) => step !== null);
  const ends = [times[0], times.at(-1) + step];
  const [begin, end] = clock(ends, ends[1] - ends[0] > DAY_S ? ends[1] - ends[0] : step);
  const top = isWhole ? edges.at(-1) - 1 : edges.at(-1);
  const span = (bin) => (isWhole ? wholeSpan(edges, bin) : `${measured(edges[bin])} to ${measured(edges[bin + 1])}`);
  const hint = open === null ? "" : " Click a bin to list those of its groups that the run still has.";
  const strongest = `The strongest colour is ${counted(most, "group")}`;
  const opens = open === null ? "" : ", Enter opens the groups of a bin";
  const name = `${title} over time. Arrows move${opens}`;
  return html`<div class="density">
    <div class="scale quiet" aria-hidden="true">
      <span>${mark(top)}</span>${isLog(edges) && html`<span>log</span>`}<span>${mark(edges[0])}</span>
    </div>
    ${
      isStill
        ? html`<${StillMap} title=${`${title} over time`} lines=${linesOf({ times, edges, quantiles, isWhole })}
            columns=${counts.map((column) => column.map((count) => tint(count, most)))} />`
        : html`<button
              type="button"
              aria-label=${name}
              onPointerMove=${(event) => setAt(placeOf(event))}
              onPointerLeave=${() => setAt(null)}
              onBlur=${() => setAt(null)}
              onKeyDown=${press}
              onClick=${(event) => event.detail > 0 && open?.(...placeOf(event))}
            >
              <canvas ref=${canvas} height=${HEIGHT}></canvas>
            </button>`
    }
    <div class="ends quiet">
      <span>${begin}${first === null ? "" : `, step ${number(first)}`}</span>
      <span>${end}${last === undefined ? "" : `, step ${number(last)}`}</span>
    </div>
    ${isStill && html`<p class="quiet">${strongest}. Lines: a tenth, the median, nine tenths.</p>`}
    <p class="quiet" role="status">
      ${
        at === null || at[0] >= times.length
          ? `${strongest}.${hint}`
          : `${moment.format(times[at[0]] * 1000)}, ${span(at[1])}: ` +
            `${counted(counts[at[0]]?.[at[1]] ?? 0, "group")}.`
      }
    </p>
  </div>`;
}

const tint = (count, most) => (count === 0 ? null : FAINTEST + (1 - FAINTEST) * Math.sqrt(count / most));

/** The value of each quantile at `times`; null where it is not known. Whole ones are in the middle of their bins. */
function quantilesAt({ times, quantiles, isWhole }) {
  const places = new Map(quantiles.times.map((time, place) => [time, place]));
  const valueAt = (name, time) => quantiles[name][places.get(time)] ?? null;
  const placed = (value) => (value !== null && isWhole ? Math.round(value) + 0.5 : value);
  return Object.keys(DASHES).map((name) => [name, times.map((time) => placed(valueAt(name, time)))]);
}

const linesOf = ({ edges, ...shown }) =>
  quantilesAt(shown).map(([name, values]) => [
    name,
    stepPath(values, (value) => heightOf(value, edges) / (edges.length - 1)),
  ]);

function draw(canvas, { times, edges, counts, quantiles, isWhole, most, at }) {
  const width = canvas.clientWidth * devicePixelRatio;
  const height = HEIGHT * devicePixelRatio;
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  const bins = edges.length - 1;
  const across = width / times.length;
  const up = height / bins;
  const x = (time) => Math.round(time * across);
  const y = (bin) => Math.round(height - bin * up);
  context.fillStyle = colour("accent");
  counts.forEach((column, time) =>
    column.forEach((count, bin) => {
      if (count === 0) return;
      context.globalAlpha = tint(count, most);
      context.fillRect(x(time), y(bin + 1), x(time + 1) - x(time), y(bin) - y(bin + 1));
    }),
  );
  context.globalAlpha = 1;
  context.strokeStyle = colour("ink");
  context.lineWidth = 1.25 * devicePixelRatio;
  for (const [name, values] of quantilesAt({ times, quantiles, isWhole })) {
    context.setLineDash(DASHES[name].map((one) => one * devicePixelRatio));
    context.beginPath();
    let isOn = false;
    values.forEach((value, column) => {
      if (value !== null) {
        const level = y(heightOf(value, edges));
        if (isOn) context.lineTo(x(column), level);
        else context.moveTo(x(column), level);
        context.lineTo(x(column + 1), level);
      }
      isOn = value !== null;
    });
    context.stroke();
  }
  if (at !== null) {
    context.setLineDash([]);
    context.strokeRect(x(at[0]), y(at[1] + 1), Math.max(2, across), up);
  }
}

/** Where a value is, in bins from the bottom. */
function heightOf(value, edges) {
  const above = edges.findIndex((edge) => edge > value);
  if (above === 0) return 0;
  if (above < 0) return edges.length - 1;
  return above - 1 + (value - edges[above - 1]) / (edges[above] - edges[above - 1]);
}
