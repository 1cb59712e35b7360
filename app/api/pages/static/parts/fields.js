// Fields to choose with, and the way from one page of a list to the next.
import { html, useState } from "../lib/html.js";
import { choose } from "../lib/route.js";
import { shown } from "../lib/text.js";

/** What a list can be narrowed to. An option is its value, or `[value, title]`. */
export function Select({ title, options, value, ...more }) {
  return html`<label>${title} <select ...${more}><${Options} options=${options} value=${value} /></select></label>`;
}

/** A field that keeps what is typed while the page is drawn again. `onChange` hears the text when it is complete. */
export function Typed({ value, onChange, ...more }) {
  const [typed, setTyped] = useState(null);
  const change = (event) => {
    setTyped(null);
    onChange(event);
  };
  return html`<input ...${more} value=${typed ?? value} onInput=${(event) => setTyped(event.target.value)}
    onChange=${change} onBlur=${() => setTyped(null)} />`;
}

/** Says that there is no `kind` of the name in the address, and which one is shown. */
export const Instead = ({ kind, wanted, name }) =>
  html`<span class="notice" role="status">
    There is no ${kind} ${shown(wanted, 48)}. This is ${shown(name, 48)}.
  </span>`;

export function Options({ options, value }) {
  return options.map((option) => {
    const [one, title] = [option, option].flat();
    return html`<option key=${one} value=${one} selected=${String(one) === String(value)}>${title}</option>`;
  });
}

/** What stands below a list that comes page by page. `cursor` is that of the next page, null after the last. */
export function Pages({ query, cursor, first = "First page", next = "Next page", name = "cursor", children }) {
  return html`<div class="filter pages">
    ${query.get(name) && html`<button type="button" onClick=${() => choose({ [name]: null })}>${first}</button>`}
    ${cursor !== null && html`<button type="button" onClick=${() => choose({ [name]: cursor })}>${next}</button>`}
    ${children && html`<span class="quiet">${children}</span>`}
  </div>`;
}
