// A group as a file: its way, and its sequences with the overlay that is shown.
import { html } from "../lib/html.js";
import { OfflineFile } from "../lib/offline.js";
import { counted, number } from "../lib/text.js";
import { GroupHistory } from "../parts/group_history.js";
import { overlaysOf } from "../parts/overlays.js";
import { Sequence } from "../parts/sequence.js";

const LIMITS = { sequences: 64, tokens: 4000, text: 100_000 };

export const HINT = "Underlined: in the loss. Point at a token for its values.";

/** The other arguments are those of `addSequences`. */
export async function groupFile(signal, { run, group, way, ...contents }) {
  const file = new OfflineFile(`Group ${group.id} of run ${run}`, signal);
  await file.add(html`<${GroupHistory} run=${run} group=${group} way=${way} />
    <h2>Sequences</h2>
    <p class="quiet">${HINT}</p>`);
  const all = contents.rows.length;
  const drawn = await addSequences(file, contents, LIMITS);
  const why = drawn === LIMITS.sequences ? `a file has at most ${LIMITS.sequences} sequences of a group` : undefined;
  if (drawn < all) file.leaveOut(`${number(all - drawn)} of ${counted(all, "sequence")}`, why);
  return { file: await file.finish(), name: `${group.id}.html` };
}

/**
 * Draw sequences of a group, and return how many the file had room for.
 *
 * `rows` are their numbers, in their order. `content` has all of them; if it is null,
 * `read({sequence, tokens}, signal)` returns one. `chosen` names the overlay, if there is one. `limits` are the most
 * sequences, tokens of each, and characters of a message (`text`).
 */
export async function addSequences(file, { rows, content, read, chosen }, limits) {
  const { sequences, tokens, text } = limits;
  for (const [place, own] of rows.slice(0, sequences).entries()) {
    const [found, at] = content === null ? [await read({ sequence: own, tokens }, file.signal), 0] : [content, own];
    const overlays = overlaysOf(found);
    const overlay = overlays.find(({ name }) => name === chosen) ?? null;
    const view = html`<${Sequence} number=${own} at=${at} content=${found} overlays=${overlays} overlay=${overlay}
      tokens=${tokens} text=${text} isAlone />`;
    if (!(await file.add(view, "siblings"))) return place;
  }
  return Math.min(rows.length, sequences);
}
