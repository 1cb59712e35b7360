// What two sequences of numbers have in common: Myers, An O(ND) Difference Algorithm (1986), with bounded work.

/** Edits that are looked for. Memory grows with their square, and work at most with their product with the length. */
const MOST_EDITS = 2000;

/**
 * Compare two arrays. Returns `{parts, isExact}`. Parts are in order: `{kind, from, to}`, where `kind` is `same`
 * (places of `left`), `left` or `right` (places of that one alone). If the arrays differ by more than `most` edits, all
 * between the common start and the common end counts as different, and `isExact` is false.
 */
export function compare(left, right, most = MOST_EDITS) {
  const shorter = Math.min(left.length, right.length);
  let begin = 0;
  while (begin < shorter && left[begin] === right[begin]) begin += 1;
  let end = 0;
  while (end < shorter - begin && left[left.length - 1 - end] === right[right.length - 1 - end]) end += 1;
  const middle = { begin, leftEnd: left.length - end, rightEnd: right.length - end };
  const edits = shortest(left, right, middle, most);
  const parts = [];
  add(parts, "same", 0, begin);
  if (edits === null) {
    add(parts, "left", begin, middle.leftEnd);
    add(parts, "right", begin, middle.rightEnd);
  } else for (const [kind, from, to] of edits) add(parts, kind, from, to);
  add(parts, "same", middle.leftEnd, left.length);
  return { parts, isExact: edits !== null };
}

function add(parts, kind, from, to) {
  if (from === to) return;
  const last = parts.at(-1);
  if (last?.kind === kind && last.to === from) last.to = to;
  else parts.push({ kind, from, to });
}

/** The shortest way from one middle to the other, as parts; null if it takes more than `most` edits. */
function shortest(left, right, { begin, leftEnd, rightEnd }, most) {
  const [width, height] = [leftEnd - begin, rightEnd - begin];
  const limit = Math.min(most, width + height);
  // furthest[k + limit + 1]: how far on the diagonal k (places left minus places right) so many edits lead.
  const furthest = new Int32Array(2 * limit + 3);
  const before = [];
  for (let edits = 0; edits <= limit; edits += 1) {
    before.push(furthest.slice(limit - edits, limit + edits + 3));
    for (let k = -edits; k <= edits; k += 2) {
      const at = k + limit + 1;
      const isDown = k === -edits || (k !== edits && furthest[at - 1] < furthest[at + 1]);
      let x = isDown ? furthest[at + 1] : furthest[at - 1] + 1;
      while (x < width && x - k < height && left[begin + x] === right[begin + x - k]) x += 1;
      furthest[at] = x;
      if (x >= width && x - k >= height) return wayBack(before, width, height, begin);
    }
  }
  return null;
}

function wayBack(before, width, height, begin) {
  const parts = [];
  let [x, y] = [width, height];
  for (let edits = before.length - 1; edits >= 0; edits -= 1) {
    const [furthest, middle, k] = [before[edits], edits + 1, x - y];
    const isDown = k === -edits || (k !== edits && furthest[middle + k - 1] < furthest[middle + k + 1]);
    const from = edits === 0 ? 0 : isDown ? furthest[middle + k + 1] : furthest[middle + k - 1];
    const after = edits === 0 ? 0 : isDown ? from : from + 1; // where the diagonal begins
    parts.push(["same", begin + after, begin + x]);
    const row = edits === 0 ? 0 : isDown ? from - k - 1 : from - k + 1;
    if (edits > 0) parts.push(isDown ? ["right", begin + row, begin + row + 1] : ["left", begin + from, begin + after]);
    [x, y] = [from, row];
  }
  return parts.reverse();
}
