// What a panel shows when it has nothing to show: loading, empty, an error, or no permission.
import { hasToken, keepToken, root, Unreachable } from "../lib/api.js";
import { refreshAll } from "../lib/feeds.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { ended, shown } from "../lib/text.js";
import { withCode } from "./names.js";

/** Least roles that are more than a name: how they are named, and the options that make their tokens. */
const ROLES = {
  contents: ["viewer with contents, or trainer", "--role viewer --contents"],
  operator: ["operator", "--role operator"],
  everywhere: ["operator of all runs", "--role operator"],
};
/** Tokens that a header can hold: a browser sends no request with another one. */
const TOKEN = "\\s*[\\x21-\\x7e]+\\s*";
const nameOf = (role) => ROLES[role]?.[0] ?? role;

/**
 * Show a feed: its state, or what `children` make of its data. `role` is the least role that may read it, or a name
 * in `ROLES`.
 */
export function Shown({ feed, role = "viewer", children }) {
  if (feed.data !== null) return children(feed.data);
  if (feed.error !== null) return html`<${Failure} error=${feed.error} retry=${feed.retry} role=${role} />`;
  return html`<p class="quiet" aria-busy="true">Loading…</p>`;
}

function Failure({ error, retry, role }) {
  if (error instanceof Unreachable) return html`<p class="quiet">Waiting for the service.</p>`;
  if (error.status === 401) return html`<${TokenForm} error=${error} role=${role} />`;
  if (error.code === "permission_denied") {
    return html`<div class="state" data-state="forbidden">
      <p><strong>Not allowed.</strong> ${shown(error.message, 500)}.</p>
      <button type="button" onClick=${signOut}>Use another token</button>
    </div>`;
  }
  const isNoRun = error.code === "run_not_found";
  return html`<div class="state" data-state="error">
    <p><strong>${shown(error.code)}</strong>: ${ended(shown(error.message, 500))}</p>
    ${isNoRun && html`<p class="quiet">It may have been deleted, or your token is not for it.</p>`}
    ${error.remedy && !isNoRun && html`<p class="quiet">${withCode(shown(error.remedy, 500))}</p>`}
    ${error.status !== 410 && html`<button type="button" onClick=${retry}>Try again</button>`}
    ${isNoRun && html` <a href=${root}>All runs</a>`}
  </div>`;
}

/** Forget the token, and all that it showed. */
export function signOut() {
  keepToken("");
  location.reload();
}

function TokenForm({ error, role }) {
  const [token, setToken] = useState("");
  const field = useRef(null);
  useEffect(() => {
    if (["", "main"].includes(document.activeElement.id)) field.current.focus();
  }, []);
  const send = (event) => {
    event.preventDefault();
    keepToken(token.trim());
    refreshAll();
  };
  return html`<form class="state" data-state="token" onSubmit=${send}>
    <p>
      <strong>This service needs a token.</strong>${" "}
      ${hasToken() ? `It refused yours: ${shown(error.message, 300)}.` : ""} The role ${nameOf(role)} is enough for
      this view.
      An operator makes a token with <code>python -m app token create${" "}
      ${ROLES[role]?.[1] ?? `--role ${role}`} --run "*"</code>.
    </p>
    <label>Token <input
      ref=${field}
      type="password"
      name="token"
      autocomplete="current-password"
      required
      pattern=${TOKEN}
      title="A token has only visible ASCII characters, and no space. Copy it again."
      value=${token}
      onInput=${(event) => setToken(event.target.value)}
    /></label>
    <button type="submit">Use it</button>
    <p class="quiet">
      It stays in this browser tab, and goes only to this service, in a header. A new tab asks for it again.
    </p>
  </form>`;
}

/** Say that there is nothing, and what changes that. */
export function Empty({ children, command }) {
  return html`<div class="state" data-state="empty">
    <p>${children}</p>
    ${command && html`<pre tabindex="0" aria-label="Command">${command}</pre>`}
  </div>`;
}

/** The run has no environment, so there is nothing to show of them. */
export function NoEnvironment({ run }) {
  const command = `LACHESIS_URL=${root.href.replace(/\/$/, "")} LACHESIS_RUN=${run} python my_environment.py`;
  return html`<${Empty} command=${command}>No environment has joined. Start one:<//>`;
}
