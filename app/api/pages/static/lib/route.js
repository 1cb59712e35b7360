// The address is the state: which view, of which run, and what is chosen in it.
import { root } from "./api.js";
import { useEffect, useRedraw } from "./html.js";

const RESTORE_MS = 30_000; // a list is asked for again, and is long enough then, also over a slow line

const readers = new Set();

// What the reader left in each entry of the history: how far it was scrolled, and the row of a list.
const places = new Map();
let entry = history.state?.entry ?? 0;
let newest = Date.now(); // entries from before a load have smaller numbers
let row = null;

/** Note the row that the reader is at: the name of its list, and its id. */
export function noteRow(list, id) {
  row = { list, id };
}

/** The row of a list that the reader was at when they left this entry of the history; null if there is none. */
export const rowOf = (list) => (row?.list === list ? row.id : null);

// A malformed escape stays as it is: the service then says what is wrong with the name.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Read the address: `{view, run, query}`. */
export function read() {
  const path = location.pathname.slice(root.pathname.length);
  const query = new URLSearchParams(location.search);
  const [first, run, view] = path.split("/");
  if (first === "runs" && run) return { run: decoded(run), view: view === "atropos" ? "now" : view, query };
  return { run: null, view: first || "runs", query };
}

/** The address of a view, with what is chosen in it. */
export function address(view, run = null, query = {}) {
  const place = run === null ? (view === "runs" ? "" : view) : `runs/${encodeURIComponent(run)}/${view}`;
  const chosen = Object.entries(query).filter(([, value]) => value !== null && value !== "");
  const text = new URLSearchParams(chosen).toString();
  return new URL(place + (text && `?${text}`), root).href;
}

/** Go to an address of the page. `replace` leaves no step to go back to. */
export function go(href, replace = false) {
  if (href === location.href) return;
  if (replace) history.replaceState(history.state, "", href);
  else {
    leave();
    newest += 1;
    history.pushState({ entry: newest, from: location.href }, "", href);
    arrive(newest);
  }
  for (const redraw of readers) redraw();
}

function leave() {
  places.set(entry, { top: scrollY, row });
}

function arrive(number) {
  entry = number;
  row = places.get(entry)?.row ?? null;
  // What had the focus may be gone: then keys begin at the content. A list then takes its row.
  setTimeout(() => document.activeElement === document.body && document.getElementById("main")?.focus(QUIETLY));
}

const QUIETLY = { preventScroll: true };

history.scrollRestoration = "manual";
addEventListener("pagehide", () => (history.scrollRestoration = "auto"));
addEventListener("popstate", () => {
  leave();
  arrive(history.state?.entry ?? 0);
  for (const redraw of readers) redraw();
  setTimeout(restore, 0, places.get(entry)?.top ?? 0);
});

/** Scroll to where the reader was, when there is enough on the page. What they do until then ends it. */
function restore(top) {
  const until = performance.now() + RESTORE_MS;
  let isOver = false;
  const end = () => (isOver = true);
  const acts = ["wheel", "keydown", "pointerdown", "popstate"];
  for (const act of acts) addEventListener(act, end, { once: true, passive: true });
  const scroll = () => {
    if (isOver) return;
    scrollTo(0, top);
    if (Math.abs(scrollY - top) > 1 && performance.now() < until) requestAnimationFrame(scroll);
    else for (const act of acts) removeEventListener(act, end);
  };
  scroll();
}

const changed = (changes) => {
  const { run, view, query } = read();
  return address(view, run, { ...Object.fromEntries(query), ...changes });
};

/** Change what is chosen in the present view. Null removes a choice. */
export const choose = (changes) => go(changed(changes), true);

/** As `choose`, of what was opened from a list: if the reader came from there, they go back. */
export function close(changes) {
  if (history.state?.from === changed(changes)) history.back();
  else choose(changes);
}

function follow(event) {
  const link = event.target.closest?.("a[data-page]");
  const plain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
  if (!link || !plain || event.defaultPrevented) return;
  event.preventDefault();
  const before = location.pathname;
  go(link.href);
  if (location.pathname !== before) document.getElementById("main")?.focus(QUIETLY);
  if (!("stay" in link.dataset)) scrollTo(0, 0); // what it opens takes its place
}
document.addEventListener("click", follow);

/** The present address; draws again when it changes. */
export function useRoute() {
  const redraw = useRedraw();
  useEffect(() => {
    readers.add(redraw);
    return () => readers.delete(redraw);
  }, []);
  return read();
}
