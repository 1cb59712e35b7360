// Answers of the API that are asked for again and again, shared by all panels that show them.
import { ask, Unreachable } from "./api.js";
import { useEffect, useRedraw } from "./html.js";

/** In place of a number of seconds: ask once. */
export const ONCE = Infinity;

const EVERY_S = 1.5; // with an answer that is a second old, what is shown is two seconds old on average
const SHARED_S = 1;

const feeds = new Map();
const watchers = new Set();

/** What the connection is like: since when the service has not answered, or null. */
export const connection = { lostAt: null, answeredAt: null };

function noteConnection(lost) {
  const now = Date.now();
  const changed = lost !== (connection.lostAt !== null);
  if (!lost) connection.answeredAt = now;
  if (!changed) return;
  connection.lostAt = lost ? now : null;
  for (const redraw of watchers) redraw();
}

class Feed {
  constructor(path, body, growth) {
    this.path = path;
    this.body = body;
    this.growth = growth;
    this.name = nameOf(path, body);
    this.readers = new Map();
    this.now = { data: null, error: null };
    this.text = null;
    this.timer = null;
    this.asking = null;
  }

  add(reader, everySeconds) {
    this.readers.set(reader, everySeconds);
    if (this.asking === null && this.timer === null && (this.text === null || everySeconds !== ONCE)) this.refresh();
  }

  remove(reader) {
    this.readers.delete(reader);
    if (this.readers.size > 0) return;
    this.stop();
    feeds.delete(this.name);
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = null;
    this.asking?.abort();
    this.asking = null;
  }

  async refresh({ whole = false, fresh = false } = {}) {
    this.stop();
    const asking = (this.asking = new AbortController());
    const known = whole || this.growth === null ? null : this.now.data;
    try {
      const path = known === null ? this.path : this.growth.path(this.path, known);
      const text = await ask(path, asking.signal, this.body, fresh || this.isOnce() ? 0 : SHARED_S);
      if (asking.signal.aborted) return;
      noteConnection(false);
      if (text !== this.text || this.now.error !== null) {
        const data = known === null ? JSON.parse(text) : this.growth.join(known, JSON.parse(text));
        if (data === null) {
          this.refresh({ whole: true });
          return;
        }
        this.set({ data, error: null }, text);
      }
    } catch (error) {
      if (asking.signal.aborted) return;
      const lost = error instanceof Unreachable;
      noteConnection(lost);
      // What was shown stays while the service does not answer. What is refused is shown no longer.
      this.set({ data: lost ? this.now.data : null, error }, lost ? this.text : null);
    }
    this.asking = null;
    if (!document.hidden) this.schedule();
  }

  set(now, text) {
    this.now = now;
    this.text = text;
    for (const reader of this.readers.keys()) reader();
  }

  /** Whether nobody wants the answer again: it stays as it is until the reader asks. */
  isOnce() {
    return [...this.readers.values()].every((seconds) => seconds === ONCE);
  }

  schedule() {
    if (this.isOnce()) return;
    const seconds = Math.min(...this.readers.values());
    this.timer = setTimeout(() => this.refresh(), seconds * 1000);
  }
}

document.addEventListener("visibilitychange", () => {
  for (const feed of feeds.values()) {
    if (document.hidden) feed.stop();
    else if (!feed.isOnce() || feed.now.data === null) feed.refresh();
  }
});

/** Ask again for everything that is shown, such as with another token. */
export function refreshAll() {
  for (const feed of feeds.values()) feed.refresh({ fresh: true });
}

const nameOf = (path, body) => (body === null ? path : `${path} ${body}`);

/**
 * The latest answer for a path: `{data, error, retry}`. A null path asks for nothing. With a body (text), the request
 * is a POST that changes nothing. With `growth`, only the first answer is whole: `growth.path` names what is new, and
 * `growth.join` adds it, or returns null to ask for all again.
 */
export function useFeed(path, everySeconds = EVERY_S, { body = null, growth = null } = {}) {
  const redraw = useRedraw();
  const name = path === null ? null : nameOf(path, body);
  useEffect(() => {
    if (path === null) return undefined;
    if (!feeds.has(name)) feeds.set(name, new Feed(path, body, growth));
    const feed = feeds.get(name);
    feed.add(redraw, everySeconds);
    redraw();
    return () => feed.remove(redraw);
  }, [name, everySeconds]);
  const feed = feeds.get(name);
  return { ...(feed?.now ?? { data: null, error: null }), retry: () => feeds.get(name)?.refresh({ fresh: true }) };
}

/** Draw again when the connection is lost or comes back. */
export function useConnection() {
  const redraw = useRedraw();
  useEffect(() => {
    watchers.add(redraw);
    return () => watchers.delete(redraw);
  }, []);
  return connection;
}
