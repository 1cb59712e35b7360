// A panel: a title, what it shows, and the commands that fetch the same from the API.
import { hasToken, root } from "../lib/api.js";
import { html, useState } from "../lib/html.js";

const address = (path) => new URL(path, root).href.replaceAll("'", "%27");

/** The command that sends a request. A body is JSON text. */
export function curl(path, body, method = null) {
  const verb = method === null ? "" : ` -X ${method}`;
  const token = hasToken() ? ' -H "Authorization: Bearer $LACHESIS_TOKEN"' : "";
  const data = body === undefined ? "" : ` -H 'Content-Type: application/json' -d '${body.replaceAll("'", "\\u0027")}'`;
  return `curl -s${verb}${token}${data} '${address(path)}'`;
}

function python(path, body) {
  const lines = ["import httpx"];
  if (hasToken()) lines.unshift("import os");
  const headers = hasToken() ? ", headers={'Authorization': 'Bearer ' + os.environ['LACHESIS_TOKEN']}" : "";
  const data = body === undefined ? "" : `, content=${JSON.stringify(body)}`;
  const method = body === undefined ? "get" : "post";
  return [...lines, "", `print(httpx.${method}('${address(path)}'${data}${headers}).json())`].join("\n");
}

/**
 * The button that shows the commands for `paths`, and these commands once it was pressed. `paths` are what a part of
 * the page asks for: paths, or `[path, body]` of POSTs that change nothing.
 */
export function useCommands(title, paths) {
  const [open, setOpen] = useState(false);
  const button =
    paths.length > 0 &&
    html`<button
      type="button"
      class="small api"
      aria-expanded=${open}
      aria-label=${`API: commands that fetch ${title}`}
      onClick=${() => setOpen(!open)}
    >
      API
    </button>`;
  return [button, open && paths.map((path) => html`<${Commands} key=${path} asked=${[path].flat()} />`)];
}

/** `paths` are as those of `useCommands`. A panel takes one column, two if it is `double`, and all if it is `wide`. */
export function Panel({ title, unit, paths = [], double = false, wide = false, level = 2, children }) {
  const [button, commands] = useCommands(title, paths);
  const id = `panel-${title.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`;
  return html`<section class=${`panel${double ? " double" : ""}${wide ? " wide" : ""}`} aria-labelledby=${id}>
    <header>
      <${`h${level}`} id=${id}>${title}${unit && html` <span class="unit">${unit}</span>`}<//>
      ${button}
    </header>
    ${commands} ${children}
  </section>`;
}

function Commands({ asked }) {
  return html`<div class="commands">
    <${Command} name="curl" text=${curl(...asked)} />
    <${Command} name="Python" text=${python(...asked)} />
  </div>`;
}

/** A command, or another text, to copy. */
export function Command({ name, text }) {
  const [said, setSaid] = useState("");
  const copy = async (event) => {
    const shownText = event.target.parentElement.querySelector("pre");
    try {
      await navigator.clipboard.writeText(text);
      setSaid("Copied.");
    } catch {
      // Browsers allow it only over HTTPS and on this machine.
      getSelection().selectAllChildren(shownText);
      setSaid("Selected: press Ctrl+C.");
    }
  };
  return html`<div>
    <button type="button" class="small" onClick=${copy}>Copy as ${name}</button>${" "}
    <span role="status" class="quiet">${said}</span>
    <pre tabindex="0" aria-label=${`${name} command`}>${text}</pre>
  </div>`;
}
