// All runs: which are healthy, which are stuck, and why.
import { health } from "../lib/health.js";
import { useFeed } from "../lib/feeds.js";
import { html, useEffect, useRedraw, useRef, useState } from "../lib/html.js";
import { address, choose, useRoute } from "../lib/route.js";
import { compact, counted, duration, number, shown } from "../lib/text.js";
import { Sentence, State } from "../parts/names.js";
import { curl, Panel } from "../parts/panel.js";
import { namesOf, quarantinedOf, RUNS } from "../parts/run.js";
import { Rows } from "../parts/rows.js";
import { Empty, Shown } from "../parts/states.js";

const MOST_LISTED_A_SECOND = 100;
const MOST_A_SECOND = 5; // requests for the states of the runs in sight
const NAMED = 16; // environments whose names the sentence of a run can use
const MOST_NAMED = 24; // characters of a name there: the sentence has two lines
const LOOKED_AT = 64; // runs whose states are asked for at a time, for the order; more would cost the service too much
const LOOK_EVERY_S = 15; // then the next ones have their turn
const URGENCY = ["bad", "warn", "wait", "good", "idle"];
const NEW = '{"name": "math-7b", "batch_size": 32}';

export function RunsView() {
  const count = useRef(0);
  const list = useFeed(RUNS, Math.max(1, count.current / MOST_LISTED_A_SECOND));
  count.current = list.data?.runs.length ?? 0;
  const paths = [RUNS, ...(list.data?.runs.slice(0, 1).map(statusOf) ?? [])];
  return html`<${Panel} title="Runs" level=${1} paths=${paths} wide>
    <${Shown} feed=${list}>${(data) => html`<${List} data=${data} />`}<//>
  <//>`;
}

function List({ data }) {
  const { query } = useRoute();
  const wanted = query.get("name") ?? "";
  const [inSight, setInSight] = useState([]);
  const [isNarrow, isMiddle] = [useMedia("(max-width: 800px)"), useMedia("(max-width: 1200px)")];
  const list = useRef(null);
  const [kinds, note] = useKinds(list);
  const looked = useTurns(data.runs);
  const all = [...data.unreadable, ...data.runs, ...data.unconfigured.map((name) => ({ name, isUnset: true }))];
  if (all.length === 0) {
    return html`<${Empty} command=${curl("v1/runs", NEW)}>
      There is no run yet, or none that you may see. A trainer makes one, or:
    <//>`;
  }
  const found = all.filter((run) => run.name.includes(wanted));
  const urgency = (run) => (run.detail === undefined ? URGENCY.indexOf(kinds.get(run.name) ?? "idle") : 0);
  const items = found.toSorted((one, other) => urgency(one) - urgency(other));
  const seen = new Set(inSight.map((run) => run.name));
  const unseen = looked.filter((run) => !seen.has(run.name));
  const every = Math.max(1, inSight.length / MOST_A_SECOND);
  return html`<div class="filter">
      <label>Name <input
        type="search"
        value=${wanted}
        onInput=${(event) => choose({ name: event.target.value })}
      /></label>
      <span class="quiet" role="status">
        ${counted(items.length, "run")}${data.next_after ? ", the first by name, of more" : ""}.
        Runs that are stuck come first.
      </span>
    </div>
    ${
      items.length === 0 &&
      html`<${Empty}>
        ${data.next_after ? `None of the first ${number(data.runs.length)} runs` : "No run"} has this in its name. Clear
        the field to see all.
      <//>`
    }
    ${unseen.map((run) => html`<${Unseen} key=${run.name} run=${run} note=${note} />`)}
    <div ref=${list}>
      <${Rows}
        label="Runs"
        items=${items}
        id=${(run) => run.name}
        height=${isNarrow ? 132 : isMiddle ? 92 : 52}
        least=${1200}
        onSight=${setInSight}
        draw=${(run) => html`<${Row} run=${run} every=${every} note=${note} />`}
      />
    </div>`;
}

/** The runs whose turn it is to be looked at, a part of all. */
function useTurns(runs) {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const next = () => document.hidden || setTurn((last) => last + 1);
    const timer = setInterval(next, LOOK_EVERY_S * 1000);
    return () => clearInterval(timer);
  }, []);
  const begin = LOOKED_AT * (turn % Math.ceil(runs.length / LOOKED_AT || 1));
  return runs.slice(begin, begin + LOOKED_AT);
}

/** The states of runs that give the order, which stays while the pointer or the focus is in the list. */
function useKinds(list) {
  const known = useRef(new Map());
  const [kinds, setKinds] = useState(known.current);
  const isStill = () => list.current?.matches(":hover, :focus-within") ?? false;
  useEffect(() => {
    const timer = setInterval(() => {
      if (known.current !== kinds && !isStill()) setKinds(known.current);
    }, 500);
    return () => clearInterval(timer);
  }, [kinds]);
  const note = (name, kind) => {
    if (known.current.get(name) !== kind) known.current = new Map(known.current).set(name, kind);
  };
  return [kinds, note];
}

const statusOf = (run) => `v1/runs/${run.name}/status?limit=${NAMED}`;

function useNoted(feed, run, note) {
  const kind = feed.data === null ? null : health(feed.data).kind;
  useEffect(() => {
    if (kind !== null) note(run.name, kind);
  }, [kind]);
}

// A run that is not in sight may get stuck, too. It is looked at while it has its turn.
function Unseen({ run, note }) {
  useNoted(useFeed(statusOf(run), LOOK_EVERY_S), run, note);
  return null;
}

function useMedia(condition) {
  const query = useRef(matchMedia(condition));
  const redraw = useRedraw();
  useEffect(() => {
    query.current.addEventListener("change", redraw);
    return () => query.current.removeEventListener("change", redraw);
  }, []);
  return query.current.matches;
}

function Row({ run, every, note }) {
  const isReadable = run.step !== undefined;
  const feed = useFeed(isReadable ? statusOf(run) : null, every);
  useNoted(feed, run, note);
  const status = feed.data;
  const quarantined = status === null ? 0 : quarantinedOf(status).length;
  const { kind, word, sentence } = isReadable ? stateOf(feed) : withoutStatus(run);
  return html`<div class="run" data-run=${run.name} data-kind=${kind}>
    <${State} kind=${kind} word=${word} />
    <a
      data-page=${run.isUnset ? null : ""}
      href=${run.isUnset ? null : address("now", run.name)}
      title=${shown(run.name)}
    >${shown(run.name, 64)}</a>
    <span class="sentence" title=${shown(sentence, 2000)}>
      ${
        quarantined > 0 &&
        html`<${State} kind="warn" word=${`${counted(quarantined, "batch", "batches")} quarantined.`} /> `
      }
      <${Sentence}
        text=${shown(sentence, 400)}
        names=${status === null ? new Map() : namesOf(status)}
        most=${MOST_NAMED}
      />
    </span>
    <span class="facts">
      ${
        status !== null &&
        html`<span>step <b>${number(status.current_step)}</b></span>
        <span><b>${compact(status.groups.queued)}</b> ${status.groups.queued === 1 ? "group" : "groups"} queued${
          status.oldest_waiting_s === null ? "" : `, oldest ${duration(status.oldest_waiting_s)}`
        }</span>
        <span>
          <b>${status.alive_environments}</b> of ${counted(status.registered_environments, "environment")} alive
        </span>`
      }
    </span>
  </div>`;
}

const UNSET = "The run has no settings: only groups came, or it was reset. Its trainer sets it up.";

const withoutStatus = ({ isUnset, detail }) =>
  isUnset
    ? { kind: "idle", word: "New", sentence: UNSET }
    : { kind: "bad", word: "Unreadable", sentence: detail };

function stateOf({ data, error }) {
  if (data !== null) return health(data);
  if (error === null) return { kind: "idle", word: "…", sentence: "" };
  return { kind: "warn", word: "Unknown", sentence: `${error.code}: ${error.message}` };
}
