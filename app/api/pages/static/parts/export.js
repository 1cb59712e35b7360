// A button that saves what is shown as one HTML file. While the file is written, it stops that.
import { html, useEffect, useState } from "../lib/html.js";
import { save } from "../lib/offline.js";
import { bytes, shown } from "../lib/text.js";

/** `write(signal)` returns the file and its name: `{file, name}`. */
export function Export({ label = "Export as HTML", write }) {
  const [said, setSaid] = useState("");
  const [stopping, setStopping] = useState(null);
  useEffect(() => () => stopping?.abort(), [stopping]);
  const exported = async () => {
    const stop = new AbortController();
    setStopping(stop);
    setSaid("Exporting…");
    try {
      const { file, name } = await write(stop.signal);
      save(file, name);
      setSaid(`Exported ${name}, ${bytes(file.size)}.`);
    } catch (error) {
      setSaid(stop.signal.aborted ? "Stopped. Nothing was saved." : `Not exported: ${shown(error.message, 300)}.`);
    }
    setStopping(null);
  };
  return html`<button type="button" onClick=${stopping === null ? exported : () => stopping.abort()}>
      ${stopping === null ? label : "Stop the export"}
    </button>
    <span class="quiet" role="status">${said}</span>`;
}
