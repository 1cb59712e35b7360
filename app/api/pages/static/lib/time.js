// The time that the reader looks at: the last hour, day or month, or a range that they brushed. It is in the address.
import { serviceTime } from "./api.js";
import { choose, useRoute } from "./route.js";
import { own } from "./series.js";

/** Spans of lines over time. */
export const MOST_POINTS = 400;

const DAY_S = 86400;
const STEPS_S = [10, 60, 900, 3600, 21600, DAY_S];

export const RANGES = { "1h": [3600, "1 h"], "1d": [DAY_S, "1 d"], "30d": [30 * DAY_S, "30 d"] };
const NAMES = ["range", "from", "to"];

/** The time zone of the reader, and a moment in it. */
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
export const moment = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** Whether seconds since 1970 are a date that a browser can write. */
export const isDate = (seconds) => seconds > 0 && seconds <= 8.64e12;

/** The part of the address that other views keep. */
export const timeOf = (query) => Object.fromEntries(NAMES.map((name) => [name, query.get(name)]));

/**
 * The range: `{range, from, to, seconds, step, isLive}`. `from` and `to` are seconds, or null where the API's default
 * does. `step` is the shortest span that a chart can show.
 */
export function useTime() {
  const { query } = useRoute();
  const [from, to] = [number(query.get("from")), number(query.get("to"))];
  const range = own(RANGES, query.get("range")) ? query.get("range") : "1h";
  const isBrushed = from !== null && to !== null && from < to;
  const seconds = isBrushed ? to - from : RANGES[range][0];
  const step = STEPS_S.find((one) => seconds / one <= MOST_POINTS) ?? DAY_S;
  // The default is the last hour. A longer range begins where a span begins, so that its address stays for a while.
  const begin = Math.floor((serviceTime() - seconds) / step + 1) * step;
  if (isBrushed) return { range: null, from, to, seconds, step, isLive: false };
  return { range, from: range === "1h" ? null : begin, to: null, seconds, step, isLive: true };
}

const FIRST_PAGE = { range: null, from: null, to: null, cursor: null }; // lists begin at their first page

const number = (text) => (/^\d{1,12}$/.test(text ?? "") ? Number(text) : null);

/** Show one of `RANGES`. The last hour is the default, and not in the address. */
export const showRange = (range) => choose({ ...FIRST_PAGE, range: range === "1h" ? null : range });

/** Show the time from one moment up to another, seconds. */
export const showBetween = (from, to) => choose({ ...FIRST_PAGE, from: Math.floor(from), to: Math.ceil(to) });
