// The state of a run in one word and one sentence. Both repeat what the status says.
import { counted, duration, ended, interval, number, percent } from "./text.js";

const HELD = ["held", "sent", "sending"];
// A trainer that took no batch for this long, and for so many of its usual intervals, may have stopped.
const OVERDUE_S = 15;
const OVERDUE_INTERVALS = 5;
const FIRST_S = 120; // until a trainer takes its first batch
const SECOND_S = 600; // until it takes the next one
const WAITED_S = 60; // since a trainer waited: after this time, none does

const state = (kind, word, sentence) => ({ kind, word, sentence: ended(sentence) });

/** Say how a run is: kind (good, wait, warn, bad or idle), a word, and a sentence that follows it. */
export function health(status) {
  const { blocked, alert, upkeep, leases, pace } = status;
  if (upkeep !== null) {
    return state("bad", "Failing", `Maintenance has failed for ${duration(upkeep.failing_age_s)}: ${upkeep.detail}`);
  }
  if (blocked?.reason === "not_registered") return state("idle", "New", blocked.detail);
  if (blocked?.reason === "archived") return state("idle", "Archived", blocked.detail);
  if (blocked?.reason === "serving_paused") return state("warn", "Paused", blocked.detail);
  if (alert !== null) return state("bad", "Alert", alert.detail);
  const late = status.alive_environments > 0 ? "warn" : "idle";
  const held = leases.filter((lease) => HELD.includes(lease.state));
  if (held.length > 0) {
    const lease = held.at(-1);
    const taken = overdue(status, lease);
    if (held.every(isExpired)) return state("warn", "Overdue", `${taken} Its lease has ended.`);
    if (pace.last_batch_age_s !== null && isOverdue(status)) return state(late, "Overdue", taken);
    const next = blocked === null ? "The next batch is ready." : `Next: ${blocked.detail}`;
    const step = isLeftBehind(status, lease) ? status.current_step : lease.step;
    const left = step === lease.step ? "" : ` A trainer still holds step ${number(lease.step)}.`;
    const words = said([`Step ${number(step)}`, ...usual(pace, "a batch every")]);
    return state("good", "Training", `${words}${left} ${next}`);
  }
  if (blocked === null) {
    const waits = `A batch of ${counted(status.batch_size, "sequence")} waits for the trainer`;
    if (!isOverdue(status)) return state("good", "Ready", said([waits, ...usual(pace, "the last ones came every")]));
    const last =
      pace.last_batch_age_s === null
        ? `which never took one: the oldest group has waited for ${duration(status.oldest_waiting_s)}`
        : `which took the last one ${duration(pace.last_batch_age_s)} ago`;
    return state(late, "Ready", said([waits, last]));
  }
  if (status.registered_environments === 0) {
    const needs = blocked.detail.replace(/; no environment has joined.*/, "");
    return state("idle", "Empty", `No environment has joined: ${needs}`);
  }
  if (status.alive_environments === 0 && !isAwaited(pace)) {
    const needs = blocked.detail.replace(/; no environment is alive: start one/, "");
    return state("idle", "Idle", `No environment is live, and no trainer waits: ${needs}`);
  }
  const lasting = pace.blocked_s === null ? "" : `for ${duration(pace.blocked_s)}`;
  if (blocked.expected_s !== null) {
    const expected = `a batch is expected in ${duration(blocked.expected_s)}`;
    return state("wait", "Waiting", `${[lasting, expected].filter(Boolean).join(", ")}: ${blocked.detail}`);
  }
  return state("bad", "Blocked", lasting ? `${lasting}: ${blocked.detail}` : blocked.detail);
}

/** Whether the trainer of a batch has neither ended it nor asked for more time, and another may get it. */
export const isExpired = (lease) => lease.expires_s === 0;

/** Whether a later batch was taken since a trainer got its first and only delivery of this one. */
const isLeftBehind = (status, lease) => lease.delivery_count === 1 && lease.step < status.current_step;

function overdue(status, lease) {
  const { last_batch_age_s: age, batch_interval_s: between } = status.pace;
  const ago = age === null ? "" : ` ${duration(age)} ago`;
  const taken = isLeftBehind(status, lease)
    ? `A trainer still holds step ${number(lease.step)}; step ${number(status.current_step)} was taken${ago}`
    : `The trainer took step ${number(lease.step)}${ago}`;
  return `${taken}${between === null ? "" : `; before, a batch came every ${interval(between)}`}.`;
}

const said = (parts) => `${parts.join(", ")}.`;

/** Whether a trainer takes its next batch much later than usual. */
function isOverdue({ oldest_waiting_s: waiting, pace: { last_batch_age_s: age, batch_interval_s: between } }) {
  if (age === null) return waiting > FIRST_S;
  return age > (between === null ? SECOND_S : Math.max(OVERDUE_S, OVERDUE_INTERVALS * between));
}

const isAwaited = ({ waiting_age_s: age }) => age !== null && age < WAITED_S;

/** How the latest batches followed each other. */
function usual({ batch_interval_s: between, trainer_idle_share: idle }, every) {
  return [
    ...(between === null ? [] : [`${every} ${interval(between)}`]),
    ...(idle === null ? [] : [`trainer idle ${percent(Number(idle.toPrecision(2)))}`]),
  ];
}
