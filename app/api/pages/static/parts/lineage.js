// The way of a group as one line of dated steps: from its item to a checkpoint.
import { html } from "../lib/html.js";
import { address } from "../lib/route.js";
import { bytes, counted, duration, number, shown } from "../lib/text.js";

const WAITS = { queued: "queued", buffered: "in the set buffer" };

export function Lineage({ run, group }) {
  return html`<ol class="way" aria-label="Way of the group">
    ${stepsOf(run, group).map(
      ([what, about]) => html`<li key=${what}><b>${what}</b> <span class="quiet">${about}</span></li>`,
    )}
  </ol>`;
}

function stepsOf(run, group) {
  const { item, policy_version: version, staleness, lease } = group;
  const steps = [];
  if (item !== null) {
    const all = address("groups", run, { item });
    steps.push(["item", html`<a data-page href=${all} title="All groups of this item">${shown(item, 60)}</a>`]);
  }
  const old = staleness === null ? "" : `, ${counted(staleness, "version")} old`;
  steps.push(["sampled", version === null ? "version unknown" : `with version ${number(version)}${old}`]);
  const tokens = group.tokens === null ? "" : `, ${counted(group.tokens, "token")}`;
  steps.push(["received", `${ago(group.received_age_s)}${tokens}, ${bytes(group.payload_bytes)}`]);
  if (group.filtered_by !== null) steps.push(["filter", shown(group.filtered_by, 40)]);
  if (group.state in WAITS) steps.push([WAITS[group.state], ""]);
  if (group.batch !== null) steps.push([`step ${number(group.step)}`, `batch ${shown(group.batch, 12)}`]);
  if (group.state === "leased") steps.push(["leased", lease === null ? "" : leaseText(lease)]);
  if (group.ended_age_s !== null) {
    steps.push([group.state, [ago(group.ended_age_s), shown(group.reason ?? "", 60)].filter(Boolean).join(", ")]);
  }
  if (group.checkpoint !== null) steps.push(["saved", `in the checkpoint of step ${number(group.checkpoint)}`]);
  return steps;
}

const ago = (seconds) => `${duration(seconds)} ago`;

function leaseText({ state, delivery_count: count, trainer, expires_s: expires }) {
  const text = [state];
  if (trainer !== null) text.push(`by ${shown(trainer, 40)}`);
  text.push(`handed out ${counted(count, "time")}`);
  if (expires !== null) text.push(`ends in ${duration(expires)}`);
  return text.join(", ");
}
