// The history of a run over the time that the reader chose.
import { Unreachable } from "../lib/api.js";
import { EVERY_S, ONCE, useFeed } from "../lib/feeds.js";
import { html, useRef } from "../lib/html.js";
import { useRoute } from "../lib/route.js";
import { growing } from "../lib/series.js";
import { duration } from "../lib/text.js";
import { MOST_POINTS, useTime } from "../lib/time.js";
import { Shown } from "./states.js";

const HOUR_S = 3600;
const SLOW_S = 10; // a day has spans of 15 min, of which 10 s are little

/**
 * The path of what is known of the time that the reader chose, with `more` parameters and at most `most` spans, and how
 * often to ask for it.
 */
export function useTimePath(place, more = {}, most = MOST_POINTS) {
  const time = useTime();
  const every = time.seconds > HOUR_S ? SLOW_S : EVERY_S;
  return [timePath(place, time, more, most), time.isLive ? every : ONCE];
}

/** The path for a time as `useTime` has it. */
export function timePath(place, { from, to }, more = {}, most = MOST_POINTS) {
  const asked = new URLSearchParams();
  if (from !== null) asked.set("from", from);
  if (to !== null) asked.set("to", to);
  asked.set("most_spans", most);
  for (const [name, value] of Object.entries(more)) if (value !== undefined) asked.set(name, value);
  return `${place}?${asked}`;
}

/**
 * As `useFeed`, of a path of `useTimePath`. When the range moves on with the time, its former answer stays until the
 * new one is there.
 */
export function useTimeFeed(path, every, options) {
  const { range } = useTime();
  const feed = useFeed(path, every, options);
  const former = useRef({});
  const asked = range === null ? path : `${range} ${path.replace(/\bfrom=\d+&/, "")}`;
  if (feed.data !== null) former.current = { asked, data: feed.data };
  const isAwaited = feed.data === null && (feed.error === null || feed.error instanceof Unreachable);
  return isAwaited && former.current.asked === asked ? { ...feed, data: former.current.data } : feed;
}

/**
 * Ask for series of the history and show them as `children(history, path)`. `fields` names the series, and
 * `environment` the only environment. There are at most `most` spans. Of a time that goes on, only the end is asked for
 * again.
 */
export function History({ run, fields, environment, most = MOST_POINTS, children }) {
  const [path, every] = useTimePath(`v1/runs/${run}/history`, { environment, fields: fields.join(",") }, most);
  const { seconds } = useTime();
  const feed = useTimeFeed(path, every, { growth: every === ONCE ? null : growing(seconds, most) });
  return html`<${Shown} feed=${feed}>${(history) => children(history, path)}<//>`;
}

/** The environment with an id or a name; undefined if there is none. */
export const environmentOf = (environments, wanted) =>
  environments.find((one) => String(one.id) === wanted || one.name === wanted);

/** The environment in the address, or the first; undefined if there is none. */
export function useEnvironment(environments) {
  const wanted = useRoute().query.get("environment");
  return environmentOf(environments, wanted) ?? environments[0];
}

/** The unit of counts in a span. */
export const each = (history, noun) => `${noun} in ${duration(history.step_s)}`;
