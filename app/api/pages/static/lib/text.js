// How values are written. Names and contents come from anyone, so all of them pass through `shown`.

const DAY_S = 86400;
const MOST = 160;
const MUCH = 1000;

// Control characters, and characters that change the direction of text or have no width.
const UNSEEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** The start of a text. It does not end with half of a character. */
const startOf = (text, most) => text.slice(0, most).replace(/[\ud800-\udbff]$/, "");

/** Write text of others: unseen characters as escapes, and no more than `most` characters. */
export function shown(value, most = MOST) {
  const text = String(value);
  const start = startOf(text, most).replace(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
  if (text.length <= most) return start;
  return text.length > MUCH ? `${start}… (${number(text.length)} characters)` : `${start}…`;
}

/** Write text of others on several lines, as it is. */
export function shownLines(value, most) {
  const text = String(value);
  const lines = startOf(text, most)
    .split("\n")
    .map((line) => shown(line.replaceAll("\t", "  "), most));
  return lines.join("\n") + (text.length > most ? `… (${number(text.length)} characters)` : "");
}

const plain = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const brief = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** Write a count with all its digits. */
export const number = (value) => plain.format(value);

/** Write a large count in a few characters. */
export const compact = (value) => (Math.abs(value) < 10000 ? plain.format(value) : short.format(value));

/** Write a value with so many digits. One that would take far more places than that has an exponent. */
export function scaled(value, digits, format, most = 1e9) {
  const size = Math.abs(value);
  const isPlain = size === 0 || (size >= 1e-6 && size < most);
  return isPlain ? format.format(value) : Number(value.toPrecision(digits)).toExponential();
}

/** Write a measured value with three digits. */
export const measured = (value) => scaled(value, 3, precise);

/** Write a value of an axis, which has little room, with three digits. */
export const mark = (value) => scaled(value, 3, brief, 1e15);

export const percent = (share) => `${precise.format(share * 100)} %`;

export function bytes(value) {
  const unit = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
  return `${precise.format(value / 1024 ** unit)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

/** Write a duration in the largest unit that fits. */
export function duration(seconds) {
  const [unit, name] = [
    [DAY_S, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ].find(([one]) => seconds >= one) ?? [1, "s"];
  const value = seconds / unit;
  return `${value < 10 && unit > 1 ? Number(value.toFixed(1)) : Math.round(value)} ${name}`;
}

/** Write the time between things that happen often. */
export const interval = (seconds) => (seconds < 10 ? `${Number(seconds.toPrecision(2))} s` : duration(seconds));

/** Write `1 group`, `2 groups`. */
export const counted = (count, noun, plural = `${noun}s`) => `${number(count)} ${count === 1 ? noun : plural}`;

/** Write a sentence with its full stop. */
export const ended = (sentence) => (/[.!?]$/.test(sentence) || sentence === "" ? sentence : `${sentence}.`);

/** Write what may be unknown: null as a dash. */
export const known = (value, write) => (value === null ? "–" : write(value));
