// The state of a run in one word and one sentence. Both repeat what the status says.
import { counted, duration, interval, number, percent } from "./text.js";

const HELD = ["held", "sent", "sending"];
// A trainer that took no batch for this long, and for so many of its usual intervals, may have stopped.
const OVERDUE_S = 60;
const OVERDUE_INTERVALS = 5;
const UNKNOWN_S = 120; // in place of an interval, after the first batch

const state = (kind, word, sentence) => ({ kind, word, sentence });

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
  const held = leases.find((lease) => HELD.includes(lease.state));
  const next = blocked === null ? "The next batch is ready." : `Next: ${blocked.detail}`;
  if (held) return state("good", "Training", `${said([`Step ${number(held.step)}`, ...usual(pace)])} ${next}`);
  if (blocked === null) {
    const waits = `A batch of ${counted(status.batch_size, "sequence")} waits for the trainer`;
    if (!isOverdue(pace)) return state("good", "Ready", said([waits, ...usual(pace)]));
    const last = `which took the last one ${duration(pace.last_batch_age_s)} ago`;
    return state(status.alive_environments > 0 ? "warn" : "idle", "Ready", said([waits, last]));
  }
  if (status.registered_environments === 0)
    return state("idle", "Empty", `No environment has joined: ${blocked.detail}`);
  const lasting = pace.blocked_s === null ? "" : `for ${duration(pace.blocked_s)}`;
  if (blocked.expected_s !== null) {
    const expected = `a batch is expected in ${duration(blocked.expected_s)}`;
    return state("wait", "Waiting", `${[lasting, expected].filter(Boolean).join(", ")}: ${blocked.detail}`);
  }
  return state("bad", "Blocked", lasting ? `${lasting}: ${blocked.detail}` : blocked.detail);
}

const said = (parts) => `${parts.join(", ")}.`;

/** Whether a trainer takes its next batch much later than usual. */
function isOverdue({ last_batch_age_s: age, batch_interval_s: between }) {
  return age !== null && age > Math.max(OVERDUE_S, OVERDUE_INTERVALS * (between ?? UNKNOWN_S));
}

/** How the latest batches followed each other. */
function usual({ batch_interval_s: between, trainer_idle_share: idle }) {
  return [
    ...(between === null ? [] : [`a batch every ${interval(between)}`]),
    ...(idle === null ? [] : [`trainer idle ${percent(Number(idle.toPrecision(2)))}`]),
  ];
}
