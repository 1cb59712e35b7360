// The address is the state: which view, of which run, and what is chosen in it.
import { root } from "./api.js";
import { useEffect, useRedraw } from "./html.js";

const readers = new Set();

/** Read the address: `{view, run, query}`. */
export function read() {
  const path = location.pathname.slice(root.pathname.length);
  const query = new URLSearchParams(location.search);
  const [first, run, view] = path.split("/");
  if (first === "runs" && run) return { run: decodeURIComponent(run), view: view === "atropos" ? "now" : view, query };
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
  history[replace ? "replaceState" : "pushState"](null, "", href);
  for (const redraw of readers) redraw();
}

/** Change what is chosen in the present view. Null removes a choice. */
export function choose(changes) {
  const { run, view, query } = read();
  go(address(view, run, { ...Object.fromEntries(query), ...changes }), true);
}

function follow(event) {
  const link = event.target.closest?.("a[data-page]");
  const plain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
  if (!link || !plain || event.defaultPrevented) return;
  event.preventDefault();
  go(link.href);
  scrollTo(0, 0);
}
document.addEventListener("click", follow);

/** The present address; draws again when it changes. */
export function useRoute() {
  const redraw = useRedraw();
  useEffect(() => {
    readers.add(redraw);
    addEventListener("popstate", redraw);
    return () => {
      readers.delete(redraw);
      removeEventListener("popstate", redraw);
    };
  }, []);
  return read();
}
