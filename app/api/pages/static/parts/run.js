// What all views of a run share: its status, and the sentence that says how it is.
import { useFeed } from "../lib/feeds.js";
import { health } from "../lib/health.js";
import { html, useEffect, useRef } from "../lib/html.js";
import { address, useRoute } from "../lib/route.js";
import { counted, duration, ended, number, shown } from "../lib/text.js";
import { timeOf } from "../lib/time.js";
import { Ledger } from "./ledger.js";
import { Sentence, State } from "./names.js";
import { useCommands } from "./panel.js";

const MOST_ENVIRONMENTS_SHOWN = 1000;
const MOST_KEPT_PX = 240; // nine lines; a run with more of them has much to say
/** What the address has while the explanation is open. */
export const EXPLAIN = "explain";
const INTAKE_PAUSED = "an operator has paused intake: environments start no groups";

/** The path of the list of runs. */
export const RUNS = "v1/runs?limit=1000";

/** The path of the status of a run, with its environments, or those after an id. */
export const statusPath = (run, after = null) =>
  `v1/runs/${encodeURIComponent(run)}/status?limit=${MOST_ENVIRONMENTS_SHOWN}` +
  (after === null ? "" : `&after=${after}`);
export const explainPath = (run) => `v1/runs/${encodeURIComponent(run)}/batches/explain`;

export const useStatus = (run) => useFeed(statusPath(run));

/** Names of environments by number. */
export const namesOf = (status) => new Map(status.environments.map((one) => [one.id, one.name]));

/** Batches that no trainer finished, and that none gets again. */
export const quarantinedOf = (status) => status.leases.filter((lease) => lease.state === "quarantined");

/** The first line of a run: how it is, why, and who must act. `hasAll`: the view shows all environments. */
export function Headline({ status, hasAll = false }) {
  const { kind, word, sentence } = health(status);
  const { view, query } = useRoute();
  const [button, commands] = useCommands("the state of the run", [statusPath(status.run)]);
  const age = status.pace.last_batch_age_s;
  const isExplained = view === "now" && query.get(EXPLAIN) !== null;
  const explain = address("now", status.run, { ...timeOf(query), [EXPLAIN]: isExplained ? null : "true" });
  const still = useHeightKept();
  return html`<section class="headline" data-kind=${kind} aria-label="State of the run">
    <div ref=${still}>
      <h1>
        <${State} kind=${kind} word=${word} />${" "}
        <span class="why"><${Sentence} text=${sentence} names=${namesOf(status)} /></span>
      </h1>
      <p class="quiet beside">
        ${age !== null && html`<span>The last batch was taken ${duration(age)} ago.</span>`}
        <a data-page href=${explain}>${isExplained ? "hide the explanation" : "explain"}</a>
        ${button}
      </p>
      ${status.blocked && html`<${WhoMustAct} status=${status} />`}
    </div>
    ${commands} ${!hasAll && html`<${FirstOf} status=${status} />`}
    <span class="spoken" role="status">${word}</span>
  </section>`;
}

/**
 * Keep the height that an element once needed, up to `MOST_KEPT_PX`: a sentence that is longer every second moves what
 * is below only once.
 */
export function useHeightKept() {
  const element = useRef(null);
  const width = useRef(null);
  useEffect(() => {
    const { style, offsetWidth } = element.current;
    if (offsetWidth !== width.current) style.minHeight = "";
    width.current = offsetWidth;
    style.minHeight = `${Math.min(element.current.offsetHeight, MOST_KEPT_PX)}px`;
  });
  return element;
}

/** What happened to the tokens of a run, above all of its views. */
export function LedgerLine({ run }) {
  const { data, error } = useStatus(run);
  const [button, commands] = useCommands("the token ledger", [statusPath(run)]);
  if (data === null && error !== null) return null;
  return html`<section class="ledger-line" aria-label="Token ledger">
    ${data !== null && html`<${Ledger} ledger=${data.ledger} /> ${button} ${commands}`}
  </section>`;
}

function FirstOf({ status }) {
  if (status.next_after === null) return null;
  return html`<p class="quiet">
    This page shows the first ${number(status.environments.length)} of${" "}
    ${counted(status.registered_environments, "environment")}.
  </p>`;
}

const heard = (one) =>
  [
    `last heard ${duration(one.last_seen_age_s)} ago`,
    counted(one.members, "member"),
    counted(one.running_groups, "running group"),
  ].join(", ");

function WhoMustAct({ status }) {
  const { missing_by_environment: missing, relaxes_s: relaxes } = status.blocked;
  const rows = status.environments.filter((one) => String(one.id) in missing);
  if (rows.length === 0 && relaxes === null) return null;
  return html`<ul class="who">
    ${rows.map(
      (one) => html`<li key=${one.id}>
        <${Sentence} text=${`environment ${one.id}`} names=${new Map([[one.id, one.name]])} />${" "}
        ${`lacks ${counted(missing[one.id], "sequence")}: ${heard(one)}.`}
      </li>`,
    )}
    ${relaxes !== null && html`<li>In ${duration(relaxes)}, a batch may form without some minimum.</li>`}
  </ul>`;
}

/** Alerts, warnings and failures, each in its own words. */
export function Notices({ status }) {
  const names = namesOf(status);
  const headline = health(status).sentence;
  const notices = [
    ...(status.alert === null ? [] : [["bad", "Alert", status.alert.detail]]),
    ...(status.intake_paused ? [["warn", "Paused", INTAKE_PAUSED]] : []),
    ...quarantinedOf(status).map((lease) => [
      "warn",
      "Quarantine",
      `batch ${lease.batch} of step ${lease.step} was handed out ${counted(lease.delivery_count, "time")}, and no ` +
        "trainer finished it",
    ]),
    ...status.warnings.map((warning) => ["warn", "Warning", warning.detail]),
  ]
    .map(([kind, word, text]) => [kind, word, ended(text)])
    .filter(([, , text]) => text !== headline);
  return notices.length > 0 && html`<${List} notices=${notices} names=${names} run=${status.run} />`;
}

function List({ notices, names, run }) {
  const [button, commands] = useCommands("alerts and warnings", [statusPath(run)]);
  return html`<section class="notices" aria-label="Alerts and warnings">
    ${button}
    <ul aria-label="Alerts and warnings">
      ${notices.map(
        ([kind, word, text], at) => html`<li key=${at} data-kind=${kind}>
          <${State} kind=${kind} word=${word} /> <span><${Sentence} text=${shown(text, 2000)} names=${names} /></span>
        </li>`,
      )}
    </ul>
    ${commands}
  </section>`;
}
