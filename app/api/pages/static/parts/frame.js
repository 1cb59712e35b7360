// What is around each view: the bar with the place and the connection, the tabs, the list of keys.
import { html, useEffect, useRedraw, useRef, useState } from "../lib/html.js";
import { hasToken, Unreachable } from "../lib/api.js";
import { growOlder, lateSeconds, ONCE, refreshLive, useConnection, useFeed } from "../lib/feeds.js";
import { keysHeard, useKeys } from "../lib/keys.js";
import { address, go } from "../lib/route.js";
import { local } from "../lib/storage.js";
import { duration, shown } from "../lib/text.js";
import { Dialog, useIdentity, useMay } from "./action.js";
import { Options } from "./fields.js";
import { LedgerLine, RUNS, statusPath } from "./run.js";
import { signOut } from "./states.js";

const THEMES = ["system", "light", "dark"];
const THEME = "lachesis.theme";

function useTheme() {
  const [theme, setTheme] = useState(local.getItem(THEME) ?? "system");
  const next = () => {
    const chosen = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    local.setItem(THEME, chosen);
    setTheme(chosen);
    dispatchEvent(new CustomEvent("lachesis-theme", { detail: chosen }));
  };
  return [theme, next];
}

export function Frame({ view, run, tabs, children }) {
  const [theme, nextTheme] = useTheme();
  const [help, setHelp] = useState(false);
  const [mayTokens, mayAudit] = [useMay("tokens"), useMay("audit")];
  const status = useFeed(run === null ? null : statusPath(run));
  const isThere = status.error?.code !== "run_not_found";
  const shownTabs = isThere ? tabs : [];
  const keys = {
    ...Object.fromEntries(shownTabs.map((tab, at) => [String(at + 1), [`view ${tab.title}`, () => go(tab.href)]])),
    r: ["all runs", () => go(address("runs"))],
    t: ["light, dark or as the system", nextTheme],
    "?": ["this list", () => setHelp(true)],
  };
  useKeys(keys);
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <header class="bar">
      <nav aria-label="Place">
        <a class="brand" data-page href=${address("runs")}>Lachesis</a>
        ${run !== null && html`<span aria-hidden="true">/</span> <${Runs} key=${run} run=${run} view=${view} />`}
      </nav>
      ${isThere && html`<${Live} />`}
      ${mayAudit && html`<a data-page href=${address("audit")}>audit</a>`}
      ${mayTokens && html`<a data-page href=${address("tokens")}>tokens</a>`}
      <a data-page href=${address("about")}>about</a>
      <${Account} />
      <button type="button" class="small" onClick=${nextTheme} title="Light, dark, or as the system">
        theme: ${theme === "system" ? "auto" : theme}
      </button>
      <button type="button" class="small keys-button" onClick=${() => setHelp(true)}>keys (?)</button>
    </header>
    ${run !== null && html`<${LedgerLine} key=${run} run=${run} />`}
    ${shownTabs.length > 0 && html`<${Tabs} tabs=${shownTabs} view=${view} />`}
    <${Lost} />
    <main id="main" tabindex="-1">${children}</main>
    <${Dialog} />
    ${help && html`<${Help} keys=${{ ...keys, ...keysHeard() }} close=${() => setHelp(false)} />`}
  `;
}

// Arrows open a list of places. By themselves they would choose the next one, and so leave the view.
const openByArrow = (event) => {
  if (!/^Arrow(Up|Down)$/.test(event.key) || !event.target.showPicker) return;
  event.preventDefault();
  event.target.showPicker();
};

// Goes to the same view of another run. It asks for the runs when somebody is about to open it.
function Runs({ run, view }) {
  const [isAsked, setAsked] = useState(false);
  const list = useFeed(isAsked ? RUNS : null, ONCE);
  const names = list.data?.runs.map((one) => one.name).filter((name) => name !== run) ?? [];
  const others = names.map((name) => [address(view, name), shown(name, 64)]);
  const more = list.data?.next_after ? "More runs …" : "All runs";
  return html`<select
    class="place"
    aria-label="Run"
    onPointerEnter=${() => setAsked(true)}
    onFocus=${() => setAsked(true)}
    onKeyDown=${openByArrow}
    onChange=${(event) => go(event.target.value)}
  >
    <${Options}
      options=${[[address(view, run), shown(run, 64)], ...others, [address("runs"), more]]}
      value=${address(view, run)}
    />
  </select>`;
}

function Tabs({ tabs, view }) {
  return html`<nav class="tabs" aria-label="Views of the run">
    ${tabs.map(
      (tab) =>
        html`<a key=${tab.view} data-page href=${tab.href} aria-current=${tab.view === view ? "page" : null}
          >${tab.title}</a
        >`,
    )}
    <select aria-label="View of the run" onKeyDown=${openByArrow} onChange=${(event) => go(event.target.value)}>
      <${Options} options=${tabs.map((tab) => [tab.href, tab.title])}
        value=${tabs.find((tab) => tab.view === view)?.href} />
    </select>
  </nav>`;
}

function Live() {
  const { isLive, isRefused } = useConnection();
  const redraw = useRedraw();
  useEffect(() => {
    const timer = setInterval(() => {
      growOlder();
      redraw();
    }, 1000);
    return () => clearInterval(timer);
  }, []);
  const late = lateSeconds();
  const [kind, word] = !isLive
    ? ["bad", "lost"]
    : isRefused
      ? ["idle", "signed out"]
      : [late === null ? "good" : "warn", "live"];
  return html`<span class="live" data-kind=${kind}>
    <i class="dot" aria-hidden="true"></i>${word}${late !== null && `, ${duration(late)} ago`}
  </span>`;
}

// Who the reader is, if the service asks. A token is forgotten here; a certificate is the browser's.
function Account() {
  const identity = useIdentity();
  if (identity === null || identity.kind === "open") return null;
  return html`<span class="quiet account" title=${shown(identity.name, 200)}>
      <bdi>${shown(identity.name, 32)}</bdi> (${identity.role})
    </span>
    ${hasToken() && html`<button type="button" class="small" onClick=${signOut}>sign out</button>`}`;
}

function Lost() {
  const { error, answeredAt } = useConnection();
  const redraw = useRedraw();
  const isLost = error !== null;
  useEffect(() => {
    if (!isLost) return undefined;
    const timer = setInterval(redraw, 1000);
    return () => clearInterval(timer);
  }, [isLost]);
  if (!isLost) return null;
  const what =
    error instanceof Unreachable
      ? "The service does not answer."
      : html`<strong>${shown(error.code)}</strong>: ${shown(error.message, 500)}.`;
  return html`<div class="lost" data-state="disconnected">
    <span role="alert">${what} The page keeps trying.</span>
    ${answeredAt !== null && html` What you see is ${duration((Date.now() - answeredAt) / 1000)} old.`}${" "}
    <button type="button" class="small" onClick=${refreshLive}>Try now</button>
  </div>`;
}

function Help({ keys, close }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="keys">
    <h2 id="keys">Keys</h2>
    <dl class="keys">
      ${Object.entries({
        ...keys,
        Enter: ["open what has the focus"],
        Esc: ["close a dialog"],
      }).map(([key, [what]]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}
    </dl>
    <button type="button" onClick=${() => dialog.current.close()}>Close</button>
  </dialog>`;
}
