// The state of a run in one word and one sentence. Both repeat what the status says.
import { counted, duration, number } from "./text.js";

const HELD = ["held", "sent", "sending"];

const state = (kind, word, sentence) => ({ kind, word, sentence });

/** Say how a run is: kind (good, wait, warn, bad or idle), a word, and a sentence. */
export function health(status) {
  const { blocked, alert, upkeep, leases } = status;
  if (upkeep !== null) {
    return state("bad", "Failing", `Maintenance has failed for ${duration(upkeep.failing_age_s)}: ${upkeep.detail}`);
  }
  if (blocked?.reason === "not_registered") return state("idle", "New", blocked.detail);
  if (blocked?.reason === "archived") return state("idle", "Archived", blocked.detail);
  if (blocked?.reason === "serving_paused") return state("warn", "Paused", blocked.detail);
  if (alert !== null) return state("bad", "Alert", alert.detail);
  const held = leases.find((lease) => HELD.includes(lease.state));
  if (blocked === null) {
    if (held)
      return state("good", "Training", `The trainer holds the batch of step ${number(held.step)}. The next is ready.`);
    return state("good", "Ready", `A batch of ${counted(status.batch_size, "sequence")} waits for the trainer.`);
  }
  if (held)
    return state(
      "good",
      "Training",
      `The trainer holds the batch of step ${number(held.step)}. Next: ${blocked.detail}`,
    );
  if (status.registered_environments === 0)
    return state("idle", "Empty", `No environment has joined: ${blocked.detail}`);
  if (blocked.expected_s !== null) {
    return state("wait", "Waiting", `A batch is expected in ${duration(blocked.expected_s)}: ${blocked.detail}`);
  }
  return state("bad", "Blocked", blocked.detail);
}
