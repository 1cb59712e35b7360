// What can be laid over tokens: one number for each, as a tint of its background.
import { html } from "../lib/html.js";
import { measured } from "../lib/text.js";

const MASKED_LOGPROB = 1; // stands for tokens that were not sampled

/**
 * What the contents have for tokens: `{name, title, rows}`, with a row for each sequence. A row of one value is that
 * of the whole sequence.
 */
export function overlaysOf(content) {
  const found = [
    ["logprob", "log probability", content.inference_logprobs],
    ["reference", "log probability of the reference", content.ref_logprobs],
    content.advantages
      ? ["advantage", "advantage", content.advantages]
      : ["advantage", "advantage over the group", content.group_advantages.map((value) => [value])],
    ["age", "version age", content.version_ages],
    ...Object.entries(content.annotations).map(([name, rows]) => [`annotation.${name}`, `${name} (annotation)`, rows]),
  ];
  return found.filter(([, , rows]) => rows).map(([name, title, rows]) => ({ name, title, rows }));
}

/** The value of an overlay at a token of a sequence; null if it is not known. */
export function valueAt({ name, rows }, sequence, place) {
  const row = rows[sequence] ?? [];
  const value = (row.length === 1 ? row[0] : row[place]) ?? null;
  return name === "logprob" && value === MASKED_LOGPROB ? null : value;
}

/** The least and the greatest value of an overlay over all sequences; null without any. */
export function rangeOf(overlay) {
  let range = null;
  overlay.rows.forEach((row, sequence) => {
    for (let place = 0; place < row.length; place += 1) {
      const value = valueAt(overlay, sequence, place);
      if (value === null) continue;
      if (range === null) range = [value, value];
      else if (value < range[0]) range[0] = value;
      else if (value > range[1]) range[1] = value;
    }
  });
  return range;
}

/** Where a value is in a range, from 0 to 1. */
export const shareOf = (value, [least, most]) => (most > least ? (value - least) / (most - least) : 0.5);

/** The tints of an overlay, and the values that they stand for. */
export function Ramp({ overlay, range }) {
  return html`<p class="ramp">
    <span>${overlay.title}</span> <span>${measured(range[0])}</span><i aria-hidden="true"></i>
    <span>${measured(range[1])}</span>
  </p>`;
}
