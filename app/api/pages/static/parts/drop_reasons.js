// Reasons why groups are dropped, by what they have in common: age, a fault, a limit, a filter.
import { DASHES } from "./names.js";

const REASONS = {
  age: ["stale", "expired", "future_version"],
  fault: ["quarantined", "corrupt", "payload_lost"],
  limit: ["deleted", "too_long"],
  filter: ["zero_variance", "reward_range", "pass_rate"],
};
export const DROP_REASONS = Object.values(REASONS).flat();

const kindOf = (reason) => Object.keys(REASONS).find((kind) => REASONS[kind].includes(reason)) ?? "filter";

/** The colour and the dash of a reason for drops. No environment has them. */
export function lineOfReason(reason) {
  const kind = kindOf(reason);
  return { token: `reason-${kind}`, dash: Math.max(0, REASONS[kind].indexOf(reason)) % DASHES.length };
}
