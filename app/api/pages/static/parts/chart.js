// Lines over time. Gaps stay gaps. The labels say the latest values, or those under the pointer.
import { serviceTime } from "../lib/api.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { useStill } from "../lib/offline.js";
import { mark, measured, shown } from "../lib/text.js";
import { showBetween } from "../lib/time.js";
import { DASHES, Stroke } from "./names.js";
import { colour, redrawn } from "./redraw.js";
import { StillLines } from "./still.js";
import uPlot from "../vendor/uplot/uPlot.esm.js";

const HEIGHT = 144;
const TOGETHER = "time"; // charts under one pointer show the same moment
const AXIS = 56;
const AXIS_HEIGHT = 32;
const RIGHT = 32; // half of a time with seconds: the last mark of the axis
const MOST_STEPS = 4; // between the marks of a y axis
const ABOVE = 0.02; // of the axis above its last mark: a line there is not cut
const NEWEST = 2; // spans whose values are the latest: the last one may not be written yet
const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86400;

const [HOUR, DAY] = [{ hour: "2-digit", minute: "2-digit" }, { day: "2-digit", month: "short" }];
const seconds = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const minutes = new Intl.DateTimeFormat("en-GB", HOUR);
const days = new Intl.DateTimeFormat("en-GB", DAY);
const daysAndMinutes = new Intl.DateTimeFormat("en-GB", { ...DAY, ...HOUR });

/**
 * Draw series over spans of `step` seconds from `times` on. A series is `{label, values, token, dash}`: `token` names
 * its colour. With `band`, two lists of values, the place between them is filled. The axis ends at `most`, if that is
 * given. Who drags over it looks at that time alone.
 */
export function Lines(chart) {
  return useStill() ? html`<${InFile} ...${chart} />` : html`<${Drawn} ...${chart} />`;
}

function InFile(chart) {
  const { title, times, step, series } = chart;
  return html`<div class="chart">
    <${Labels} title=${title} times=${times} step=${step} series=${series} />
    <${StillLines} ...${chart} />
  </div>`;
}

function Drawn({ title, times, step, series, band = null, most = null }) {
  const [at, setAt] = useState(null);
  // The last value lasts until its span ends.
  const lines = [...(band ?? []), ...series.map((one) => one.values)];
  const data = [ended(times, times.at(-1) + step), ...lines.map((values) => ended(values, values.at(-1)))];
  const shape = series.map((one) => `${one.label} ${one.token} ${one.dash}`).join("\n") + (band !== null);
  const place = usePlot(data, () => options(series, band, most, setAt), shape);
  return html`<div class="chart">
    <${Labels} title=${title} times=${times} step=${step} series=${series} at=${at} />
    <div ref=${place} role="img" aria-label=${title}></div>
  </div>`;
}

/** The marks of the time axis of charts, below something else that is drawn over time. Half of a mark is beside it. */
export function TimeAxis({ times, step }) {
  const place = usePlot([ended(times, times.at(-1) + step)], axisOptions, "");
  return html`<div ref=${place} aria-hidden="true"></div>`;
}

const ended = (values, last) => (values.length === 0 ? values : [...values, last]);

/** Draw `data` with the options of `make()`, in the place that is returned. Another `shape` makes a new plot. */
function usePlot(data, make, shape) {
  const place = useRef(null);
  const chart = useRef(null);
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    const width = () => place.current.clientWidth;
    const draw = () => {
      chart.current?.destroy();
      chart.current = new uPlot({ width: width(), ...make() }, latest.current, place.current);
    };
    const resize = () => chart.current.setSize({ width: width(), height: chart.current.height });
    const end = redrawn(place.current, draw, resize);
    return () => {
      end();
      chart.current.destroy();
      chart.current = null;
    };
  }, [shape]);
  useEffect(() => chart.current?.setData(data));
  return place;
}

/** Of when the latest values are that are known: "latest", or a moment if nothing is known of later spans. */
export function latestAt(times, step, at) {
  return at < times.length - NEWEST ? momentOf(times[at], step) : "latest";
}

function whenOf(times, step, at, shownAt) {
  if (shownAt === null) return "No data for this time.";
  return at === null ? latestAt(times, step, shownAt) : momentOf(times[at], step);
}

const momentOf = (time, step) => (step < MINUTE_S ? seconds : daysAndMinutes).format(time * 1000);

/** The series, with their values at a place; without one, the latest. */
function Labels({ title, times, step, series, at = null }) {
  const shownAt = at ?? lastKnown(times, series);
  return html`<ul class="labels" aria-label=${`${title}: values`}>
    ${series.map(
      (one) =>
        html`<li key=${one.label}>
          <${Stroke} token=${one.token} dash=${one.dash} />
          <bdi>${shown(one.label, 40)}</bdi> <b>${value(one.values[shownAt])}</b>
        </li>`,
    )}
    <li class="quiet when">${whenOf(times, step, at, shownAt)}</li>
  </ul>`;
}

/** The median and the mean over time, in the band from the first to the ninth tenth. */
export function QuantileLines({ title, unit, times, step, own }) {
  return html`<${Lines} title=${`${title}, ${unit}`} times=${times} step=${step} band=${[own.p10, own.p90]}
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

/** Times that are so many seconds `apart`: hours and minutes; with seconds if they are near, days if they are far. */
export function clock(times, apart) {
  const format = apart < MINUTE_S ? seconds : apart < DAY_S ? minutes : days;
  return times.map((at) => format.format(at * 1000));
}

// Between the marks of a time axis: as those of uPlot, and two minutes. From one to five, a young run has one mark.
const MARKS_S = [
  ...[1, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((one) => one * MINUTE_S),
  ...[1, 2, 3, 4, 6, 8, 12].map((one) => one * HOUR_S),
  ...[1, 2, 3, 5, 10, 15, 30, 60, 90, 180, 365, 730, 1825, 3650].map((one) => one * DAY_S),
];

// A time with seconds has room between its marks.
const TIME_AXIS = {
  grid: { show: false },
  size: AXIS_HEIGHT,
  space: 72,
  incrs: MARKS_S,
  values: (plot, marks, axis, space, apart) => clock(marks, apart),
};

/** Marks of a y axis: the first is not above the least value, the last not below the most. `isWhole`: of counts. */
function marksOf(least, most, isWhole) {
  const apart = (most - least || 1) / MOST_STEPS;
  const power = 10 ** Math.floor(Math.log10(apart));
  const steps = [1, 2, 2.5, 5, 10].map((one) => one * power).filter((one) => !isWhole || Number.isInteger(one));
  const step = steps.find((one) => one >= apart) ?? 1;
  const first = Math.floor(least / step);
  const count = Math.max(1, Math.ceil(most / step) - first);
  return Array.from({ length: count + 1 }, (_, at) => (first + at) * step);
}

const isCount = (one) => one == null || Number.isInteger(one);

// What is known of a span that is not over still changes: it is fainter.
function fadeLast(plot) {
  const [begin, end] = plot.data[0].slice(-2);
  if (!(end > serviceTime())) return;
  const { left, top, width, height } = plot.bbox;
  const from = plot.valToPos(begin, "x", true);
  plot.ctx.fillStyle = `${colour("paper")}99`;
  plot.ctx.fillRect(from, top, left + width - from, height);
}

// The span under the pointer, which begins on its left.
function spanAt(plot) {
  const { left } = plot.cursor;
  const times = plot.data[0];
  if (left < 0 || times.length === 0) return null;
  const at = plot.posToVal(left, "x");
  return Math.max(0, times.findLastIndex((time, place) => time <= at && place < times.length - 1));
}

function brushed(plot) {
  const { left, width } = plot.select;
  if (width === 0 || plot.cursor.event?.target?.closest?.(".uplot") !== plot.root) return;
  plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  showBetween(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
}

// A gap takes the column in which the line begins again: the way up from the last value would show in it.
// The last value would go on to the end of the axis.
function clearGaps(plot, series, first, last, gaps) {
  const clear = gaps.map(([from, to]) => [from, to + 1]);
  const after = plot.data[0][last + 1];
  if (after === undefined) return clear;
  return [...clear, [Math.round(plot.valToPos(after, "x", true)), plot.bbox.left + plot.bbox.width + 1]];
}

// A value between two gaps has no line: it is a dot.
const alone = (plot, series) =>
  plot.data[series].flatMap((one, at, all) => (one != null && all[at - 1] == null && all[at + 1] == null ? [at] : []));

const axisOptions = () => ({
  height: AXIS_HEIGHT,
  padding: [0, RIGHT, 0, RIGHT],
  legend: { show: false },
  cursor: { show: false },
  axes: [{ ...TIME_AXIS, stroke: colour("ink-2"), ticks: { stroke: colour("rule"), width: 1 } }],
  series: [{}],
});

function options(series, band, end, setAt) {
  let marks = [0, 1]; // of the y axis
  const paths = uPlot.paths.stepped({ align: 1, alignGaps: 1, extend: true });
  const edge = () => ({ paths, gaps: clearGaps, width: 0, points: { show: false } });
  const ink = colour("ink-2");
  const rule = { stroke: colour("rule"), width: 1 };
  return {
    height: HEIGHT,
    padding: [null, RIGHT, null, null],
    legend: { show: false },
    cursor: {
      y: false,
      drag: { x: true, y: false, setScale: false, dist: 4 },
      points: { show: false },
      sync: { key: TOGETHER, setSeries: false, scales: ["x", null] },
    },
    scales: {
      y: {
        range: (plot, least, most) => {
          const isWhole = plot.data.slice(1).every((values) => values.every(isCount));
          marks = marksOf(Math.min(0, least ?? 0), end ?? Math.max(0, most ?? 0), isWhole);
          const [bottom, top] = [marks[0], marks.at(-1)];
          return [bottom, top + ABOVE * (top - bottom)];
        },
      },
    },
    axes: [
      { ...TIME_AXIS, stroke: ink, ticks: rule },
      {
        stroke: ink,
        grid: rule,
        ticks: { show: false },
        size: AXIS,
        splits: () => marks,
        values: () => marks.map(mark),
      },
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
    hooks: { setCursor: [(plot) => setAt(spanAt(plot))], setSelect: [brushed], draw: [fadeLast] },
  };
}
