// Tokens as inline text. Underlined tokens are in the loss; a tint is a value. The line below says a token's values.
import { idOf } from "../lib/contents.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib/html.js";
import { useStill } from "../lib/offline.js";
import { shown } from "../lib/text.js";
import { shareOf, valueAt } from "./overlays.js";

const NO_LOSS = -100;
const TEXT = 1000; // characters of a token
const MOVES = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };

const isTrained = (content, at, place) => content.masks[at][place] !== NO_LOSS;

/** What stands for a token: its text, or its id. Contents of others: unseen characters are escaped. */
export function written({ tokens, texts }, at, place) {
  const id = idOf(tokens[at][place]);
  if (!texts) return id;
  const text = texts[at][place];
  if (text === null) return `⟨${id}⟩`;
  return text
    .split("\n")
    .map((line) => shown(line.replaceAll("\t", "⇥"), TEXT))
    .join("↵\n");
}

/** The class of a box of tokens. */
export const classOf = ({ texts }) => (texts ? "tokens text" : "tokens");

/** What stands between tokens: text has its own spaces. */
export const gap = ({ texts }) => (texts ? "" : " ");

/**
 * The first `most` tokens of row `at` of the contents. The arrow keys move between them. In a file, each has its values
 * as its title.
 */
export function Tokens({ label, at, content, overlays, overlay, range, most }) {
  const isStill = useStill();
  const box = useRef(null);
  const [active, setActive] = useState(null);
  const drawn = useMemo(
    () =>
      content.tokens[at].slice(0, most).map((_, place) => {
        const value = range && valueAt(overlay, at, place);
        const style = value === null ? null : { "--share": shareOf(value, range).toFixed(3) };
        const title = isStill ? factsOf(content, overlays, at, place).join(" · ") : null;
        return html`<span data-place=${place} title=${title} class=${isTrained(content, at, place) ? "trained" : null}
            data-overlay=${style && ""} style=${style}>${written(content, at, place)}</span>${gap(content)}`;
      }),
    [content, at, most, overlay, range],
  );
  useEffect(() => {
    const one = active === null ? null : box.current.querySelector(`[data-place="${active}"]`);
    one?.setAttribute("data-active", "");
    return () => one?.removeAttribute("data-active");
  }, [active, drawn]);
  const point = (event) => {
    const place = event.target.dataset.place;
    if (place !== undefined) setActive(Number(place));
  };
  const move = (event) => {
    const by = MOVES[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = active === null ? 0 : Math.max(0, Math.min(drawn.length - 1, active + by));
    setActive(next);
    box.current.querySelector(`[data-place="${next}"]`)?.scrollIntoView({ block: "nearest" });
  };
  return html`<div class=${classOf(content)} role="group" tabindex="0" aria-label=${label} ref=${box}
      onMouseOver=${point} onKeyDown=${move}>${drawn}</div>
    <p class="readout quiet" role="status">
      ${active !== null && factsOf(content, overlays, at, active).join(" · ")}
    </p>`;
}

function factsOf(content, overlays, at, place) {
  const version = content.policy_versions?.[at]?.[place] ?? null;
  return [
    `token ${content.first_token + place}`,
    `id ${idOf(content.tokens[at][place])}`,
    ...(content.texts ? [`“${written(content, at, place)}”`] : []),
    isTrained(content, at, place) ? "in the loss" : "not in the loss",
    ...overlays
      .map((one) => [one.title, valueAt(one, at, place)])
      .filter(([, value]) => value !== null)
      .map(([title, value]) => `${title} ${value}`),
    ...(version === null ? [] : [`version ${version}`]),
  ];
}
