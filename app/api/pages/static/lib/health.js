// The state of a run in one word and one sentence. Both repeat what the status says.
import { counted, duration, interval, number, percent } from "./text.js";

const HELD = ["held", "sent", "sending"];

const state = (kind, word, sentence) => ({ kind, word, sentence });

/** Say how a run is: kind (good, wait, warn, bad or idle), a word, and a sentence that goes on after it. */
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
    return state("good", "Ready", said([waits, ...usual(pace)]));
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

/** How the latest batches followed each other. */
function usual({ batch_interval_s: between, trainer_idle_share: idle }) {
  return [
    ...(between === null ? [] : [`a batch every ${interval(between)}`]),
    ...(idle === null ? [] : [`trainer idle ${percent(Number(idle.toPrecision(2)))}`]),
  ];
}
