// Two sequences in one text: what both have is folded, what only one has is marked.
import { compare } from "../lib/diff.js";
import { html, useMemo, useState } from "../lib/html.js";
import { choose, useRoute } from "../lib/route.js";
import { counted, measured, number } from "../lib/text.js";
import { classOf, gap, written } from "./tokens.js";

const AROUND = 8; // tokens beside a difference that are not folded
const DRAWN = 4000; // tokens, until the reader asks for more
const NAMES = { left: "del", right: "ins" };

/** What was unfolded, in the address: another pair of sequences begins without it. */
export const FOLDED = { unfolded: null };

/** `left` and `right` are `{number, at, content}`: a sequence, and where the contents have it. */
export function Comparison({ left, right }) {
  const [most, setMost] = useState(DRAWN);
  const open = new Set((useRoute().query.get("unfolded") ?? "").split(".").filter(Boolean).map(Number));
  const inputs = [left.content, left.at, right.content, right.at];
  const found = useMemo(() => compare(tokensOf(left), tokensOf(right)), inputs);
  const count = (kind) => total(found.parts, kind);
  const unfold = (place) => choose({ unfolded: [...open, place].join(".") });
  const [drawn, isAll] = draw(found.parts, { left, right, most, open, unfold });
  const cut = [left, right].filter((one) => tokensOf(one).length < one.content.lengths[one.number]);
  return html`<article class="sequence comparison" aria-label="Comparison">
    <h3>${titleOf(left)} beside ${titleOf(right)}</h3>
    <p class="quiet">
      ${counted(count("same"), "token")} in both. <del>Struck out</del>${`: ${count("left")} only in sequence
      ${left.number}. `}<ins>Tinted</ins>${`: ${count("right")} only in sequence ${right.number}.`}
    </p>
    ${
      !found.isExact &&
      html`<p class="notice">
        They differ too much to be compared token by token. All between their common start and their common end is
        marked.
      </p>`
    }
    ${cut.map(
      (one) => html`<p class="notice" key=${one.number}>
        Of sequence ${one.number} the first ${number(tokensOf(one).length)} of
        ${" "}${counted(one.content.lengths[one.number], "token")} are compared.
      </p>`,
    )}
    <div class=${classOf(left.content)} role="group" tabindex="0" aria-label="Tokens of both sequences">${drawn}</div>
    ${!isAll && html`<button type="button" class="small" onClick=${() => setMost(4 * most)}>More tokens</button>`}
  </article>`;
}

const tokensOf = ({ content, at }) => content.tokens[at];

const titleOf = ({ content, at, number: own }) => `Sequence ${own}, score ${measured(content.scores[at])}`;

const total = (parts, kind) => parts.reduce((sum, part) => (part.kind === kind ? sum + part.to - part.from : sum), 0);

/** At most `most` tokens of the parts, and whether these are all. */
function draw(parts, { left, right, most, open, unfold }) {
  const drawn = [];
  let room = most;
  const write = (kind, from, to) => {
    const side = kind === "right" ? right : left;
    const name = NAMES[kind] ?? "span";
    const last = Math.min(to, from + room);
    room -= last - from;
    for (let place = from; place < last; place += 1) {
      const text = written(side.content, side.at, place);
      drawn.push(html`<${name} key=${`${kind}${place}`}>${text}<//>${gap(side.content)}`);
    }
  };
  for (const [at, { kind, from, to }] of parts.entries()) {
    if (room <= 0) return [drawn, false];
    const begin = at === 0 ? from : from + AROUND;
    const end = at === parts.length - 1 ? to : to - AROUND;
    if (kind !== "same" || end - begin < AROUND || open.has(at)) {
      write(kind, from, to);
      continue;
    }
    write(kind, from, begin);
    drawn.push(
      html`<button key=${`fold${at}`} type="button" class="small" onClick=${() => unfold(at)}
        >${counted(end - begin, "token")} in both: show</button
      >${" "}`,
    );
    write(kind, end, to);
  }
  return [drawn, room > 0];
}
