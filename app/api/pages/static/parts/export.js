// Saves a group as one HTML file: its way, and its sequences with the overlay that is shown.
import { ask } from "../lib/api.js";
import { html, useState } from "../lib/html.js";
import { offlineFile, save } from "../lib/offline.js";
import { bytes, number, shown } from "../lib/text.js";
import { Lineage } from "./lineage.js";
import { overlaysOf } from "./overlays.js";
import { Sequence } from "./sequence.js";

const SEQUENCES = 64;
const TOKENS = 4000; // of each sequence
const TEXT = 100_000; // characters of a message

/** `rows` are the numbers of the sequences in their order, `asked` makes the path of a part of the contents. */
export function Export({ run, group, content, rows, isWhole, asked, chosen }) {
  const [said, setSaid] = useState("");
  const exported = async () => {
    setSaid("Exporting…");
    const found = rows.slice(0, SEQUENCES);
    try {
      const parts = [];
      if (isWhole) for (const number of found) parts.push({ number, at: number, content });
      else for (const number of found) parts.push({ number, at: 0, content: await part(asked, number) });
      const view = html`<${Exported} run=${run} group=${group} parts=${parts} all=${rows.length} chosen=${chosen} />`;
      const file = offlineFile(`Group ${group.id} of run ${run}`, view);
      save(file, `${group.id}.html`);
      setSaid(`Exported ${group.id}.html, ${bytes(file.size)}.`);
    } catch (error) {
      setSaid(`Not exported: ${shown(error.message, 300)}.`);
    }
  };
  return html`<button type="button" onClick=${exported}>Export as HTML</button>
    <span class="quiet" role="status">${said}</span>`;
}

const part = async (asked, number) => JSON.parse(await ask(asked({ sequence: number, tokens: TOKENS })));

function Exported({ run, group, parts, all, chosen }) {
  return html`<${Lineage} run=${run} group=${group} />
    <h2>Sequences</h2>
    ${parts.length < all && html`<p class="notice">${number(parts.length)} of ${number(all)} sequences.</p>`}
    <p class="quiet">Underlined: in the loss. Point at a token for its values.</p>
    <div class="siblings exported">
      ${parts.map(({ number: own, at, content }) => {
        const overlays = overlaysOf(content);
        const overlay = overlays.find(({ name }) => name === chosen) ?? null;
        return html`<${Sequence} key=${own} number=${own} at=${at} content=${content} overlays=${overlays}
          overlay=${overlay} tokens=${TOKENS} text=${TEXT} isAlone isStill />`;
      })}
    </div>`;
}
