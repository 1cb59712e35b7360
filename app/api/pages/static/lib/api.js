// The REST API, which is all that the page asks.
import { session } from "./storage.js";

// This file is at pages/VERSION/lib/ below the root of the service.
export const root = new URL("../../../", import.meta.url);

const TOKEN = "lachesis.token";
const SILENT_MS = 40_000; // a service that works says within half of this that it cannot answer

const SKEWED_MS = 60_000; // less may be the way of an answer: its date has whole seconds
let skewMs = 0;

/** The time of the service, seconds since 1970: that of the browser, unless its clock is wrong by a minute or more. */
export const serviceTime = () => (Date.now() + skewMs) / 1000;

function noteTime(date) {
  const ahead = Date.parse(date) - Date.now();
  if (!Number.isNaN(ahead)) skewMs = Math.abs(ahead) < SKEWED_MS ? 0 : ahead;
}

/** What the service answered in place of what was asked. */
export class Refused extends Error {
  constructor(status, code, detail, remedy = "") {
    super(detail);
    Object.assign(this, { status, code, remedy });
  }
}

/** The service did not answer. */
export class Unreachable extends Error {
  constructor() {
    super("the service does not answer");
    this.code = "unreachable";
  }
}

/** Keep a token until the browser's tab is closed. An empty one forgets it. */
export function keepToken(token) {
  if (token) session.setItem(TOKEN, token);
  else session.removeItem(TOKEN);
}

export const hasToken = () => session.getItem(TOKEN) !== null;

export function headers() {
  const token = session.getItem(TOKEN);
  return { Accept: "application/json", ...(token === null ? {} : { Authorization: `Bearer ${token}` }) };
}

/**
 * Ask for a path below the root, and return the text of the answer. With a body, the request is a POST. `sharing` says
 * which answer to another reader will do, too: ten open pages then cost the service about as much as one.
 */
export const ask = (path, signal, body = null, sharing = null) =>
  exchange({ method: body === null ? "GET" : "POST", path, body, sharing }, signal);

/** One that is at most a second old, and one that has the change with this revision. */
export const OF_A_SECOND = "max-age=1";
export const withChange = (revision) => `revision=${revision}`;

/** Send a request that changes something, and return the answer, null without one. It is never repeated by itself. */
export async function send({ method, path, body }) {
  const text = await exchange({ method, path, body: body === undefined ? null : JSON.stringify(body) });
  return text === "" ? null : JSON.parse(text);
}

// What only reads has a signal, and is given up if nothing comes. A change is awaited: it may still be made.
async function exchange({ method, path, body, sharing = null }, signal) {
  const type = body === null ? {} : { "Content-Type": "application/json" };
  const shared = sharing === null ? {} : { "Cache-Control": sharing };
  const silence = new AbortController();
  const timer = signal && setTimeout(() => silence.abort(), SILENT_MS);
  let reply;
  let text;
  try {
    reply = await fetch(new URL(path, root), {
      method,
      headers: { ...headers(), ...type, ...shared },
      body,
      signal: signal && AbortSignal.any([signal, silence.signal]),
      // Without credentials of the browser's own: it would ask for a password by itself.
      credentials: "omit",
      cache: "no-store",
    });
    clearTimeout(timer);
    noteTime(reply.headers.get("date"));
    text = await reply.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Unreachable();
  } finally {
    clearTimeout(timer);
  }
  if (reply.ok) return text;
  throw refused(reply.status, text);
}

function refused(status, text) {
  try {
    const problem = JSON.parse(text);
    const detail = String(problem.detail ?? problem.title ?? status);
    return new Refused(status, String(problem.code ?? status), detail, String(problem.remedy ?? ""));
  } catch {
    return new Refused(status, String(status), `the service answered ${status}`);
  }
}
