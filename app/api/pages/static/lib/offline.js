// One HTML file of what a component draws. It opens without the service, and loads and runs nothing.
import { root } from "./api.js";
import { html, render } from "./html.js";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/** Draw `view` and return it as a file. What needs a script is left out, and links are text. */
export function offlineFile(title, view) {
  const page = document.implementation.createHTMLDocument(title);
  const main = page.body.appendChild(page.createElement("main"));
  const from = `Exported from ${root.href} at ${new Date().toISOString()}.`;
  render(html`<h1>${title}</h1><p class="quiet">${from}</p>${view}`, main);
  const copy = main.cloneNode(true);
  render(null, main);
  for (const element of copy.querySelectorAll("button, [role=status]")) element.remove();
  for (const link of copy.querySelectorAll("a")) link.replaceWith(...link.childNodes);
  main.replaceWith(copy);
  return new Blob(
    [
      `<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n`,
      `<meta http-equiv="Content-Security-Policy" content="${POLICY}">\n`,
      `<meta name="viewport" content="width=device-width, initial-scale=1">\n`,
      // Everything of others goes through the serializer, which escapes it. The styles are our own files.
      new XMLSerializer().serializeToString(page.querySelector("title")),
      `\n<style>\n${styles()}\n</style>\n</head>\n`,
      new XMLSerializer().serializeToString(page.body),
      "\n</html>\n",
    ],
    { type: "text/html" },
  );
}

const styles = () =>
  [...document.styleSheets]
    .flatMap((sheet) => [...sheet.cssRules])
    .map((rule) => rule.cssText)
    .join("\n");

/** Save a file under a name. */
export function save(file, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
