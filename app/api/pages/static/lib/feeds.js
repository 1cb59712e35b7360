// Answers of the API that are asked for again and again, shared by all panels that show them.
import { ask, OF_A_SECOND, Unreachable, withChange } from "./api.js";
import { useEffect, useRedraw } from "./html.js";
import { followRun } from "./stream.js";

/** In place of a number of seconds: ask once. */
export const ONCE = Infinity;

/**
 * How often to ask, if nothing else is said. Of a run that the page follows, what is to be as new as this is asked for
 * when the run changes, and rarely else: what changes by time alone, such as ages, may be that old.
 */
export const EVERY_S = 1;
const FOLLOWED_S = 10;
const UNTOLD_S = 2; // while the stream of changes is not there
const FRESH_S = 3; // until an answer is there; a busy service may take a moment
const RETRY_S = 10; // at most, after a failure that passes; at least, with a token that was refused

const feeds = new Map();
const watchers = new Set();

/**
 * What the connection is like. `error` says why answers do not come, or is null. `answeredAt` is when the oldest of
 * what is shown in spite of it was answered, or null; what is asked for rarely does not count beside what is asked for
 * often. `isLive`: all answers come. `isRefused`: the service wants a token, or another one.
 */
export const connection = { error: null, answeredAt: null, isLive: true, isRefused: false };

/** Whether the service wants a token, or another one. */
const isOfToken = (error) => error?.status === 401;

/** Whether a failure says nothing about what was asked for: the service does not answer, or cannot now. */
const isPassing = (error) => error instanceof Unreachable || error?.status >= 500 || error?.status === 429;

/** Seconds since the last answer of what should be there already, or null if all is. */
export function lateSeconds() {
  const now = Date.now();
  const late = [...feeds.values()].filter((feed) => feed.answeredAt !== null && now > feed.wantedAt + FRESH_S * 1000);
  return late.length === 0 ? null : Math.max(...late.map((feed) => (now - feed.answeredAt) / 1000));
}

/** The stream of changes of the run that is shown, if there is one: what it tells of, and whether it is there. */
const stream = { prefix: null, isOpen: false, openedAt: 0, follower: null };

/** Ask for what is shown of a run when it changes. Returns a function that ends this. */
export function follow(run) {
  stream.prefix = `v1/runs/${encodeURIComponent(run)}/`;
  listen();
  return () => {
    stream.prefix = null;
    listen();
  };
}

function listen() {
  stream.follower?.stop();
  stream.follower = null;
  setOpen(false);
  if (stream.prefix === null || document.hidden || connection.isRefused) return;
  const run = decodeURIComponent(stream.prefix.split("/")[2]);
  const own = followRun(
    run,
    (revision) => stream.follower === own && eachFollowed((feed) => feed.hear(revision)),
    (isOpen) => stream.follower === own && setOpen(isOpen),
  );
  stream.follower = own;
}

// What was asked for before the stream was there may lack a change that it does not tell: it is asked for once more.
function setOpen(isOpen) {
  if (isOpen && !stream.isOpen) stream.openedAt = Date.now();
  stream.isOpen = isOpen;
  if (!isOpen) eachFollowed((feed) => feed.timer !== null && feed.schedule());
}

const followedSeconds = () =>
  stream.isOpen && Date.now() >= stream.openedAt + UNTOLD_S * 1000 ? FOLLOWED_S : UNTOLD_S;

function eachFollowed(work) {
  for (const feed of feeds.values()) if (feed.isOfStream()) work(feed);
}

function noteConnection() {
  const failing = [...feeds.values()].filter((feed) => isPassing(feed.now.error));
  const kept = failing.filter((feed) => feed.now.data !== null);
  const often = kept.filter((feed) => feed.period() <= FOLLOWED_S);
  const times = (often.length === 0 ? kept : often).map((feed) => feed.answeredAt);
  const shown = failing.find((feed) => feed.now.error instanceof Unreachable) ?? kept[0];
  const error = shown?.now.error ?? null;
  const isLive = failing.length === 0;
  const isRefused = [...feeds.values()].some((feed) => isOfToken(feed.now.error));
  const wasRefused = connection.isRefused;
  const changed =
    error?.message !== connection.error?.message || isLive !== connection.isLive || isRefused !== wasRefused;
  const answeredAt = times.length === 0 ? null : Math.min(...times);
  Object.assign(connection, { error, answeredAt, isLive, isRefused });
  if (isRefused !== wasRefused) listen();
  if (changed) for (const redraw of watchers) redraw();
}

/** The service answers again: ask for what it did not answer. */
function askAgain() {
  for (const feed of feeds.values()) {
    if (feed.now.error instanceof Unreachable && feed.asking === null) feed.refresh();
  }
}

// Ages of an answer, which grow until the next one: those of the run and of what it has. A setting is not an age.
const AGE = /(?<!max)_age_s$|^blocked_s$|^oldest_waiting_s$/;

function aged(value, seconds, name = "") {
  if (typeof value === "number") return AGE.test(name) ? value + seconds : value;
  if (Array.isArray(value)) return value.map((one) => aged(one, seconds));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, aged(one, seconds, key)]));
}

/** Add the time since the answers to the ages in them, unless the service is lost, or a list stays as it is. */
export function growOlder() {
  for (const feed of feeds.values()) feed.growOlder();
}

class Feed {
  constructor(path, body, growth, read, isFinal) {
    this.path = path;
    this.read = read;
    this.isFinal = isFinal;
    this.body = body;
    this.growth = growth;
    this.name = nameOf(path, body);
    this.readers = new Map();
    this.now = { data: null, error: null };
    this.answer = null; // the data as they were answered
    this.text = null;
    this.answeredAt = null;
    this.timer = null;
    this.dueAt = null; // when the timer ends
    this.asking = null;
    this.wantedAt = Infinity; // since when an answer is awaited, or when it is to be asked for
    this.news = null; // the revision of a change that the answer lacks, or the one on its way may lack
    this.nextAt = 0; // when the service can say more, as it says itself
  }

  add(reader, everySeconds) {
    this.readers.set(reader, everySeconds);
    const isTooLate = this.timer !== null && everySeconds * 1000 < this.dueAt - Date.now();
    if (isTooLate) this.schedule();
    if (this.asking === null && this.timer === null && (this.text === null || everySeconds !== ONCE)) this.refresh();
  }

  remove(reader) {
    this.readers.delete(reader);
    if (this.readers.size > 0) return;
    this.stop();
    feeds.delete(this.name);
    noteConnection();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = null;
    this.asking?.abort();
    this.asking = null;
    this.wantedAt = Infinity;
  }

  /**
   * The run has changed. An answer on its way is awaited: to break it off would cost the service another one. Nothing
   * is asked for before the service can say more.
   */
  hear(revision) {
    this.news = revision;
    if (this.asking !== null || this.isOver()) return;
    if (Date.now() < this.nextAt) this.schedule();
    else this.refresh({ revision });
  }

  /** Whether the stream tells when to ask again. */
  isOfStream() {
    return stream.prefix !== null && this.path.startsWith(stream.prefix) && this.period() <= EVERY_S;
  }

  async refresh({ whole = false, fresh = false, revision = null } = {}) {
    this.stop();
    this.wantedAt = Date.now();
    this.news = null;
    const asking = (this.asking = new AbortController());
    const known = whole || this.growth === null ? null : this.now.data;
    try {
      const path = known === null ? this.path : this.growth.path(this.path, known);
      const shared = revision === null ? OF_A_SECOND : withChange(revision);
      const text = await ask(path, asking.signal, this.body, fresh || this.isOnce() ? null : shared);
      if (asking.signal.aborted) return;
      this.answeredAt = Date.now();
      if (text !== this.text || this.now.error !== null) {
        const data = known === null ? this.read(text) : this.growth.join(known, JSON.parse(text));
        if (data === null) {
          this.refresh({ whole: true, revision });
          return;
        }
        this.set({ data, error: null }, text);
      }
      this.nextAt = this.answeredAt + (this.now.data?.next_in_s ?? 0) * 1000;
    } catch (error) {
      if (asking.signal.aborted) return;
      // What was shown stays while the service does not answer. What is refused is shown no longer.
      const stays = isPassing(error);
      if (!stays) this.answeredAt = Date.now();
      this.set({ data: stays ? this.answer : null, error }, stays ? this.text : null);
    }
    this.asking = null;
    this.wantedAt = Infinity;
    const wasLost = connection.error instanceof Unreachable;
    noteConnection();
    if (wasLost && this.now.error === null) askAgain();
    if (document.hidden) return;
    if (this.news !== null && this.now.error === null) this.hear(this.news);
    else this.schedule();
  }

  set(now, text) {
    this.now = now;
    this.answer = now.data;
    this.text = text;
    for (const reader of this.readers.keys()) reader();
  }

  growOlder() {
    const isSettled = this.text === null || this.now.error !== null || this.growth !== null || this.isOnce();
    if (isSettled || !this.text.includes("_age_s")) return;
    this.now = { ...this.now, data: aged(this.answer, (Date.now() - this.answeredAt) / 1000) };
    for (const reader of this.readers.keys()) reader();
  }

  /** Whether nobody wants the answer again: it stays as it is until the reader asks. */
  isOnce() {
    return [...this.readers.values()].every((seconds) => seconds === ONCE);
  }

  /** Whether what was refused stays refused. */
  isOver() {
    return this.now.error !== null && this.isFinal(this.now.error);
  }

  /** How often it is asked for, seconds. */
  period() {
    return Math.max(Math.min(...this.readers.values()), isOfToken(this.now.error) ? RETRY_S : 0);
  }

  schedule() {
    const isFailing = isPassing(this.now.error);
    if ((this.isOnce() && !isFailing) || this.isOver()) return;
    const untilNext = this.news === null ? ONCE : Math.max(0, this.nextAt - Date.now()) / 1000;
    const seconds = Math.min(this.isOfStream() ? followedSeconds() : this.period(), isFailing ? RETRY_S : untilNext);
    clearTimeout(this.timer);
    this.dueAt = Date.now() + seconds * 1000;
    this.wantedAt = seconds === ONCE ? Infinity : this.dueAt;
    this.timer = setTimeout(() => this.refresh({ revision: this.news }), seconds * 1000);
  }
}

/** Ask again for what follows the service, and for what failed. */
export function refreshLive() {
  for (const feed of feeds.values()) {
    const isWanted = !feed.isOnce() || feed.now.data === null || feed.now.error;
    if (isWanted && !feed.isOver()) feed.refresh();
  }
}

document.addEventListener("visibilitychange", () => {
  listen();
  if (!document.hidden) refreshLive();
  else for (const feed of feeds.values()) feed.stop();
});
for (const change of ["online", "offline"]) addEventListener(change, () => !document.hidden && refreshLive());

/** Ask again for everything that is shown, such as with another token. */
export function refreshAll() {
  for (const feed of feeds.values()) feed.refresh({ fresh: true });
}

const never = () => false;
const nameOf = (path, body) => (body === null ? path : `${path} ${body}`);

/**
 * The latest answer for a path: `{data, error, retry}`. A null path asks for nothing. With a body (text), the request
 * is a POST that changes nothing. With `growth`, only the first answer is whole: `growth.path` names what is new, and
 * `growth.join` adds it, or returns null to ask for all again. `read` makes the data from the text of the answer. After
 * an error for which `isFinal(error)` is true, nothing is asked any more.
 */
export function useFeed(path, everySeconds = EVERY_S, options = {}) {
  const { body = null, growth = null, read = JSON.parse, isFinal = never } = options;
  const redraw = useRedraw();
  const name = path === null ? null : nameOf(path, body);
  useEffect(() => {
    if (path === null) return undefined;
    if (!feeds.has(name)) feeds.set(name, new Feed(path, body, growth, read, isFinal));
    const feed = feeds.get(name);
    feed.add(redraw, everySeconds);
    redraw();
    return () => feed.remove(redraw);
  }, [name]);
  // Another period keeps the answer.
  useEffect(() => {
    if (path !== null) feeds.get(name).add(redraw, everySeconds);
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
