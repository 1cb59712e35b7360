// The stall timeline: what blocked the run from training, one lane for each cause.
import { serviceTime } from "../lib/api.js";
import { html, useRef, useState } from "../lib/html.js";
import { useStill } from "../lib/offline.js";
import { duration } from "../lib/text.js";
import { moment, showBetween } from "../lib/time.js";
import { TimeAxis } from "./chart.js";
import { Sentence } from "./names.js";
import { Ends } from "./still.js";

// The causes of the API, each with the title of its lane.
const CAUSES = [
  ["waiting_for_data", "waiting for data"],
  ["minimum_short", "a minimum is short"],
  ["no_exact_fit", "no exact fit"],
  ["trainer_holds_batch", "the trainer holds the batch"],
  ["starvation", "nothing trainable arrives"],
  ["paused", "paused by an operator"],
];
const POINT = "Point at a moment to read what blocked the run. Click to look at it.";
const MOVES = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

/**
 * `blocked` has the seconds of each cause in each span of `stepSeconds` from `times` on, and `said` the sentence of
 * each span. `names` are those of environments by id. The reader points at a span to read it, clicks to look at that
 * span alone, and drags to look at several. Keys do the same: arrows move, with Shift they mark, Enter looks closer.
 */
export function Stalls(stalls) {
  if (!useStill()) return html`<${Timeline} ...${stalls} />`;
  return html`<${Lanes} ...${stalls} mark=${UNMARKED} />
    <div class="lane-times"><${Ends} times=${stalls.times} step=${stalls.stepSeconds} /></div>`;
}

const UNMARKED = { at: null };

function Timeline({ times, stepSeconds, blocked, said, names }) {
  const [at, setAt] = useState(null);
  const [since, setSince] = useState(null);
  const lanes = useRef(null);
  const last = times.length - 1;
  const bounded = (place) => Math.max(0, Math.min(last, place));
  const placeOf = (event) => {
    const { left, width } = lanes.current.querySelector("svg").getBoundingClientRect();
    return bounded(Math.floor(((event.clientX - left) / width) * times.length));
  };
  const look = (one, other) => showBetween(times[Math.min(one, other)], times[Math.max(one, other)] + stepSeconds);
  const clear = () => {
    setAt(null);
    setSince(null);
  };
  const down = (event) => {
    if (event.button !== 0 || last < 0) return;
    event.preventDefault();
    lanes.current.focus({ preventScroll: true });
    lanes.current.setPointerCapture(event.pointerId);
    setSince(placeOf(event));
    setAt(placeOf(event));
  };
  const up = (event) => {
    if (since === null) return;
    look(since, placeOf(event));
    setSince(null);
  };
  const press = (event) => {
    if (event.key === "Escape") clear();
    else if (event.key === "Enter" && at !== null) look(since ?? at, at);
    else if (event.key in MOVES && last >= 0) {
      setSince(event.shiftKey ? (since ?? at ?? last) : null);
      setAt(bounded((at ?? last) + MOVES[event.key]));
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const mark = { since, at };
  return html`<div
      class="timeline"
      ref=${lanes}
      tabindex="0"
      role="group"
      aria-label="Stalls over time: arrows move, with Shift they mark a time, Enter looks at it"
      onPointerMove=${(event) => last >= 0 && setAt(placeOf(event))}
      onPointerLeave=${() => since === null && setAt(null)}
      onPointerDown=${down}
      onPointerUp=${up}
      onKeyDown=${press}
    >
      <${Lanes} times=${times} stepSeconds=${stepSeconds} blocked=${blocked} mark=${mark} />
      <div class="lane-times"><${TimeAxis} times=${times} step=${stepSeconds} /></div>
    </div>
    <p class="quiet moment" role="status">
      ${
        at === null || at > last
          ? POINT
          : html`<${Sentence} text=${sentence(times, stepSeconds, said, at)} names=${names} />`
      }
    </p>`;
}

function Lanes({ times, stepSeconds, blocked, mark }) {
  return html`<dl class="stalls">
    ${CAUSES.map(
      ([cause, title]) =>
        html`<div key=${cause}>
          <dt>${title}</dt>
          <dd>
            <${Lane} cause=${cause} title=${title} times=${times} step=${stepSeconds} values=${blocked[cause]}
              mark=${mark} />
          </dd>
        </div>`,
    )}
  </dl>`;
}

const sentence = (times, step, said, at) =>
  `${moment.format(times[at] * 1000)}, ${duration(step)}: ${said[at] ?? "Nothing is known."}`;

function Lane({ cause, title, times, step, values, mark }) {
  const spans = values.flatMap((seconds, at) => (seconds > 0 ? [[at, seconds]] : []));
  const last = spans.at(-1);
  const isOver = (at) => times[at] + step <= serviceTime();
  const [over, open] = [true, false].map((wanted) => spans.filter(([at]) => isOver(at) === wanted));
  const path = (some) => some.map(([at, seconds]) => bar(at, Math.min(1, seconds / step))).join("");
  const summary = last ? `last at ${moment.format(times[last[0]] * 1000)}` : "never in this time";
  return html`<svg viewBox=${`0 0 ${Math.max(1, times.length)} 1`} preserveAspectRatio="none" role="img"
    data-cause=${cause} aria-label=${`${title}: ${summary}`}>
    <path d=${path(over)} /><path class="open" d=${path(open)} />
    ${mark.at !== null && html`<${Mark} ...${mark} />`}
  </svg>`;
}

const bar = (at, height) => `M${at} 1v${-height}h1v${height}z`;

function Mark({ since, at }) {
  const first = Math.min(since ?? at, at);
  const width = Math.abs((since ?? at) - at) + 1;
  return html`<rect class="chosen" x=${first} y="0" width=${width} height="1" />`;
}
