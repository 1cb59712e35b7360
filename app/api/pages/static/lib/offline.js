// One HTML file of what components draw. It opens without the service, and loads and runs nothing.
import { root } from "./api.js";
import { createContext, html, render, useContext } from "./html.js";
import { bytes, shown } from "./text.js";
import { moment, zone } from "./time.js";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
const MOST_BYTES = 24 * 1024 * 1024; // browsers open it within seconds

const Still = createContext(false);

/** Whether a component is drawn into a file, where no script runs. It shows at once what the page shows on request. */
export const useStill = () => useContext(Still);

/**
 * A file that grows part by part. Each part is drawn in a task of its own, so that the page still answers. `signal`
 * stops it.
 */
export class OfflineFile {
  constructor(title, signal) {
    this.title = shown(title, 200);
    this.signal = signal;
    this.size = 0;
    this.box = null;
    this.parts = [];
    this.leftOut = [];
  }

  /**
   * Draw `view` at the end of the file, and return whether it had room. Parts of the same `box`, a class, are side by
   * side. What needs a script is left out, and links are text.
   */
  async add(view, box = null) {
    await turn();
    this.signal.throwIfAborted();
    const part = new Blob([this.between(box), drawn(view)]);
    if (this.size + part.size > MOST_BYTES) return false;
    this.size += part.size;
    this.box = box;
    this.parts.push(part);
    return true;
  }

  between(box) {
    if (box === this.box) return "";
    return `${this.box === null ? "" : "</div>\n"}${box === null ? "" : `\n<div class="${box}">`}`;
  }

  /** Say at the top of the file that it leaves out `what`, and `why`. Without `why`, there is no room for it. */
  leaveOut(what, why = `a file has at most ${bytes(MOST_BYTES)}`) {
    this.leftOut.push(`Left out: ${what}, because ${why}.`);
  }

  async finish() {
    const now = new Date();
    const style = await styles(this.signal);
    const head = html`<h1>${this.title}</h1>
      <p class="quiet">
        Exported from ${shown(root.href)} at ${moment.format(now)}, time zone ${zone} (${now.toISOString()}). All times
        are of this zone, and all ages of that moment.
      </p>
      ${this.leftOut.map((text) => html`<p class="notice">${text}</p>`)}`;
    return new Blob(
      [
        `<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n`,
        `<meta http-equiv="Content-Security-Policy" content="${POLICY}">\n`,
        `<meta name="viewport" content="width=device-width, initial-scale=1">\n`,
        drawn(html`<title>${this.title}</title>`),
        `\n<style>\n${style}\n</style>\n</head>\n<body>\n<main class="file">\n`,
        drawn(head),
        ...this.parts,
        this.between(null),
        "\n</main>\n</body>\n</html>\n",
      ],
      { type: "text/html" },
    );
  }
}

/** Let the page answer its reader first. */
const turn = () => new Promise((go) => setTimeout(go));

// Everything of others goes through the serializer, which escapes it.
function drawn(view) {
  const place = document.implementation.createHTMLDocument().body;
  render(html`<${Still.Provider} value=${true}>${view}<//>`, place);
  const copy = place.cloneNode(true);
  render(null, place);
  for (const element of copy.querySelectorAll("button, [role=status]")) element.remove();
  for (const link of copy.querySelectorAll("a")) link.replaceWith(...link.childNodes);
  // Several parts may have the same name, and headings tell them apart.
  for (const element of copy.querySelectorAll("[aria-labelledby]")) element.removeAttribute("aria-labelledby");
  for (const element of copy.querySelectorAll("[id]")) element.removeAttribute("id");
  const serializer = new XMLSerializer();
  return [...copy.childNodes].map((node) => serializer.serializeToString(node)).join("");
}

// Our own files as they are, so that the file follows the theme of its reader.
async function styles(signal) {
  const read = async ({ href }) => (await fetch(href, { signal, cache: "force-cache", credentials: "omit" })).text();
  return (await Promise.all([...document.styleSheets].map(read))).join("\n");
}

/** Save a file under a name. */
export function save(file, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
