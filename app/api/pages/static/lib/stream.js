// Hears from the service when a run changes, so that the page need not ask all the time.
import { headers, root } from "./api.js";

const AGAIN_MS = 2000; // after the stream broke
const SILENT_MS = 40_000; // the service says something every 15 s
// A browser opens six connections to a service, for all of its pages. The others are for answers.
const PLACES = ["1", "2", "3", "4"].map((name) => `lachesis.stream.${name}`);

/**
 * Follow a run until `stop()` of the result is called. `onOpen(isOpen)` hears whether the stream is there, and
 * `onChange(revision)` of each change since then.
 */
export function followRun(run, onChange, onOpen) {
  const stopping = new AbortController();
  const path = `v1/runs/${encodeURIComponent(run)}/events?changes=true`;
  const read = () => readStream(path, stopping.signal, onChange, onOpen);
  const go = async () => {
    while (!stopping.signal.aborted) {
      await inPlace(read);
      onOpen(false);
      await rest(AGAIN_MS, stopping.signal);
    }
  };
  go();
  return { stop: () => stopping.abort() };
}

/** Do something that holds one of a few places of this browser, or nothing if all are taken. */
async function inPlace(work) {
  if (!navigator.locks) return work(); // browsers have them over HTTPS and on this machine
  try {
    for (const name of PLACES) {
      const isDone = await navigator.locks.request(name, { ifAvailable: true }, async (lock) => {
        if (lock !== null) await work();
        return lock !== null;
      });
      if (isDone) return undefined;
    }
    return undefined;
  } catch {
    return work(); // a browser that blocks storage denies them
  }
}

const rest = (milliseconds, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });

async function readStream(path, stop, onChange, onOpen) {
  const ending = new AbortController();
  const end = () => ending.abort();
  stop.addEventListener("abort", end);
  let timer = null;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(end, SILENT_MS);
  };
  try {
    const reply = await fetch(new URL(path, root), {
      headers: { ...headers(), Accept: "text/event-stream" },
      signal: ending.signal,
      credentials: "omit",
      cache: "no-store",
    });
    if (!reply.ok) return;
    heard();
    let text = "";
    let last = null;
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      heard();
      const frames = `${text}${piece.value}`.split("\n\n");
      text = frames.pop();
      for (const revision of frames.map(revisionOf).filter((one) => one !== null)) {
        if (last === null) onOpen(true);
        else onChange(revision);
        last = revision;
      }
    }
  } catch {
    // It is tried again. What the page asks for says what is wrong.
  } finally {
    end();
    clearTimeout(timer);
    stop.removeEventListener("abort", end);
  }
}

/** The revision in a piece of the stream that tells of a change; null in any other piece. */
function revisionOf(frame) {
  const lines = frame.split("\n");
  if (!lines.includes("event: changed")) return null;
  const data = lines.find((line) => line.startsWith("data: "));
  return JSON.parse(data.slice("data: ".length)).revision;
}
