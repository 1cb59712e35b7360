// Names of runs and environments. An environment keeps its colour and mark on every panel.
import { html } from "../lib/html.js";
import { shown } from "../lib/text.js";

const HUES = 8;
const MARKS = ["dot", "square", "ring", "bar", "diamond", "triangle", "frame", "flag"];

/** The dashes of lines: lengths of strokes and gaps. */
export const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [2, 5], [8, 3, 2, 3, 2, 3], [4, 2, 4, 6]];

/** The number of an environment's colour: the order in which environments registered, again from the first after 8. */
export const hue = (environment) => environment % HUES;

/** The number of an environment's dash and mark: among 8 in a row all differ, and with the colour among 64. */
const form = (environment) => (environment + Math.floor(environment / HUES)) % HUES;

/** The colour and the dash of an environment's line. */
export const lineOf = (environment) => ({ token: `hue-${hue(environment)}`, dash: form(environment) });

/** A piece of a line, before its name. */
export function Stroke({ token, dash = 0 }) {
  return html`<svg class="line" viewBox="0 0 24 4" width="24" height="4" aria-hidden="true"
    ><path d="M0 2H24" style=${{ stroke: `var(--${token})` }} stroke-dasharray=${DASHES[dash].join(" ") || null}
  /></svg>`;
}

/** The mark of an environment, in its colour. On that colour it is `inverse`. */
export function Mark({ id, inverse = false }) {
  const own = inverse ? null : hue(id);
  return html`<i class="mark" data-hue=${own} data-mark=${MARKS[form(id)]} aria-hidden="true"></i>`;
}

/** The name of an environment behind its mark. */
export function Environment({ id, name, most = 48, ...more }) {
  return html`<span class="environment" ...${more}
    ><${Mark} id=${id} /><bdi title=${shown(name, 200)}>${shown(name, most)}</bdi></span
  >`;
}

/** The API puts code between backticks. */
export const withCode = (text) => text.split("`").map((part, at) => (at % 2 === 1 ? html`<code>${part}</code>` : part));

// A sentence of the API cuts a name that has more characters than this (`MAX_NAME` of the service).
const MOST_SAID = 80;

function asSaid(name) {
  const characters = [...name];
  return characters.length <= MOST_SAID ? name : `${characters.slice(0, MOST_SAID - 3).join("")}...`;
}

/** A sentence of the API, with the names of the environments whose numbers it has, of `most` characters. */
export function Sentence({ text, names, most }) {
  const parts = [];
  let rest = shown(text, 2000);
  for (let found; (found = /environment (\d+)/.exec(rest)) !== null; ) {
    const id = Number(found[1]);
    const isKnown = names.has(id);
    parts.push(withCode(rest.slice(0, found.index)));
    parts.push(isKnown ? html`<${Environment} id=${id} name=${names.get(id)} most=${most} />` : found[0]);
    rest = rest.slice(found.index + found[0].length);
    // The name may have words as those that are looked for.
    const said = isKnown ? ` (${shown(asSaid(names.get(id)))})` : "";
    if (rest.startsWith(said)) rest = rest.slice(said.length);
  }
  return [...parts, withCode(rest)];
}

/** A state as a word with a mark in its colour. */
export function State({ kind, word }) {
  return html`<span class="kind" data-kind=${kind}><i class="dot" aria-hidden="true"></i>${word}</span>`;
}
