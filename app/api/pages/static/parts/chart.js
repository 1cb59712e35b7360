// Lines over time. Gaps stay gaps. The labels say the latest values, or those under the pointer.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { useStill } from "../lib/offline.js";
import { measured, shown } from "../lib/text.js";
import { moment, showBetween } from "../lib/time.js";
import { DASHES, Stroke } from "./names.js";
import { StillLines } from "./still.js";
import uPlot from "../vendor/uplot/uPlot.esm.js";

const HEIGHT = 144;
const TOGETHER = "time"; // charts under one pointer show the same moment
const AXIS = 56;
const RIGHT = 32; // half of a time with seconds: the last mark of the axis
const DAY_S = 86400;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const hours = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const minutes = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const days = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short" });

/**
 * Draw series over `times` (seconds). A series is `{label, values, token, dash}`: `token` names its colour. With
 * `band`, two lists of values, the place between them is filled. The axis ends at `most`, if that is given. Who drags
 * over it looks at that time alone.
 */
export function Lines(chart) {
  return useStill() ? html`<${InFile} ...${chart} />` : html`<${Drawn} ...${chart} />`;
}

function InFile(chart) {
  const { title, times, series } = chart;
  return html`<div class="chart">
    <${Labels} title=${title} times=${times} series=${series} />
    <${StillLines} ...${chart} />
  </div>`;
}

function Drawn({ title, times, series, band = null, most = null }) {
  const place = useRef(null);
  const chart = useRef(null);
  const [at, setAt] = useState(null);
  const data = [times, ...(band ?? []), ...series.map((one) => one.values)];
  const shape = series.map((one) => `${one.label} ${one.token} ${one.dash}`).join("\n") + (band !== null);

  useEffect(() => {
    const draw = () => {
      chart.current?.destroy();
      chart.current = new uPlot(options(place.current.clientWidth, series, band, most, setAt), data, place.current);
    };
    draw();
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const sizes = new ResizeObserver(() => chart.current.setSize({ width: place.current.clientWidth, height: HEIGHT }));
    sizes.observe(place.current);
    dark.addEventListener("change", draw);
    addEventListener("lachesis-theme", draw);
    return () => {
      sizes.disconnect();
      dark.removeEventListener("change", draw);
      removeEventListener("lachesis-theme", draw);
      chart.current.destroy();
      chart.current = null;
    };
  }, [shape]);
  useEffect(() => chart.current?.setData(data));

  return html`<div class="chart">
    <${Labels} title=${title} times=${times} series=${series} at=${at} />
    <div ref=${place} role="img" aria-label=${title}></div>
  </div>`;
}

/** The series, with their values at a place; without one, the latest. */
function Labels({ title, times, series, at = null }) {
  const shownAt = at ?? lastKnown(times, series);
  return html`<ul class="labels" aria-label=${`${title}: values`}>
    ${series.map(
      (one) =>
        html`<li key=${one.label}>
          <${Stroke} token=${one.token} dash=${one.dash} />
          <bdi>${shown(one.label, 40)}</bdi> <b>${value(one.values[shownAt])}</b>
        </li>`,
    )}
    ${shownAt !== null && html`<li class="quiet">${at === null ? "latest" : moment.format(times[at] * 1000)}</li>`}
  </ul>`;
}

/** The median and the mean over time, in the band from the first to the ninth tenth. */
export function QuantileLines({ title, unit, times, own }) {
  return html`<${Lines} title=${`${title}, ${unit}`} times=${times} band=${[own.p10, own.p90]}
    series=${[
      { label: "median", values: own.p50, token: "accent" },
      { label: "mean", values: own.mean, token: "edge", dash: 1 },
    ]} />`;
}

const value = (one) => (one == null ? "–" : measured(one));

function lastKnown(times, series) {
  for (let at = times.length - 1; at >= 0; at--) if (series.some((one) => one.values[at] != null)) return at;
  return null;
}

/** Marks of the time axis: hours and minutes; with seconds if they are near each other, days if they are far apart. */
export function clock(marks) {
  const apart = marks[1] - marks[0];
  const format = apart < 60 ? minutes : apart < DAY_S ? hours : days;
  return marks.map((at) => format.format(at * 1000));
}

// A time with seconds has room between its marks.
const TIME_AXIS = { grid: { show: false }, size: 32, space: 72, values: (_, marks) => clock(marks) };

function brushed(plot) {
  const { left, width } = plot.select;
  if (width === 0 || plot.cursor.event?.target?.closest?.(".uplot") !== plot.root) return;
  plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  showBetween(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
}

// A gap takes the column in which the line begins again: the way up from the last value would show in it.
const clearGaps = (plot, series, first, last, gaps) => gaps.map(([from, to]) => [from, to + 1]);

// A value between two gaps has no line: it is a dot.
const alone = (plot, series) =>
  plot.data[series].flatMap((one, at, all) => (one != null && all[at - 1] == null && all[at + 1] == null ? [at] : []));

function options(width, series, band, end, setAt) {
  const paths = uPlot.paths.stepped({ align: 1 });
  const edge = () => ({ paths, gaps: clearGaps, width: 0, points: { show: false } });
  const ink = colour("ink-2");
  const rule = { stroke: colour("rule"), width: 1 };
  return {
    width,
    height: HEIGHT,
    padding: [null, RIGHT, null, null],
    legend: { show: false },
    cursor: {
      y: false,
      drag: { x: true, y: false, setScale: false, dist: 4 },
      points: { show: false },
      sync: { key: TOGETHER, setSeries: false, scales: ["x", null] },
    },
    scales: { y: { range: (_, least, most) => [Math.min(0, least ?? 0), end ?? (Math.max(0, most ?? 0) || 1)] } },
    axes: [
      { ...TIME_AXIS, stroke: ink, ticks: rule },
      { stroke: ink, grid: rule, ticks: { show: false }, size: AXIS, values: (_, marks) => marks.map(measured) },
    ],
    series: [
      {},
      ...(band === null ? [] : [edge(), edge()]),
      ...series.map((one) => ({
        stroke: colour(one.token),
        width: 1.5,
        dash: DASHES[one.dash ?? 0],
        paths,
        gaps: clearGaps,
        points: { show: true, filter: alone, size: 4, width: 0, fill: colour(one.token) },
      })),
    ],
    bands: band === null ? [] : [{ series: [2, 1], fill: `${colour(series[0].token)}33` }],
    hooks: { setCursor: [(plot) => setAt(plot.cursor.idx ?? null)], setSelect: [brushed] },
  };
}
