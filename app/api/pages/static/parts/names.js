// Names of runs and environments. An environment keeps its colour and mark on every panel.
import { html } from "../lib/html.js";
import { shown } from "../lib/text.js";

const HUES = 8;
const MARKS = ["dot", "square", "ring", "bar"];

/** The number of an environment's colour: the order in which environments registered, again from the first after 8. */
export const hue = (environment) => environment % HUES;

/** The colour and the dash of a line. After 8 lines the colours come again, with another dash. */
export const lineOf = (at) => ({ token: `hue-${hue(at)}`, dash: Math.floor(at / HUES) % 4 });

const mark = (environment) => MARKS[Math.floor(environment / HUES) % MARKS.length];

/** The name of an environment behind its mark. */
export function Environment({ id, name, most = 48 }) {
  return html`<span class="environment"
    ><i class="mark" data-hue=${hue(id)} data-mark=${mark(id)} aria-hidden="true"></i
    ><bdi title=${shown(name, 200)}>${shown(name, most)}</bdi></span
  >`;
}

/** A sentence of the API, with the names of the environments whose numbers it has. */
export function Sentence({ text, names }) {
  let said = null;
  return shown(text, 2000)
    .split(/(environment \d+)/)
    .map((part) => {
      const id = part.startsWith("environment ") ? Number(part.slice(12)) : null;
      if (id !== null && names.has(id)) {
        said = ` (${shown(names.get(id))})`;
        return html`<${Environment} id=${id} name=${names.get(id)} />`;
      }
      return said !== null && part.startsWith(said) ? part.slice(said.length) : part;
    });
}

/** A state as a word with a mark in its colour. */
export function State({ kind, word }) {
  return html`<span class="kind" data-kind=${kind}><i class="dot" aria-hidden="true"></i>${word}</span>`;
}
