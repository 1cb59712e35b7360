// The way of a group as one line of dated steps: from its item to a checkpoint.
import { useFeed } from "../lib/feeds.js";
import { html } from "../lib/html.js";
import { address } from "../lib/route.js";
import { isGone } from "./batch.js";
import { bytes, counted, duration, number, shown } from "../lib/text.js";

const WAITS = { queued: "queued", buffered: "in the set buffer" };
const ATTEMPTS = 100; // groups of an item that are counted
const NOTHING = { listed: null, batch: null, isForgotten: false };

/**
 * What the API says around a group: `listed`, the groups of its item, and `batch`; null while it is not known.
 * `isForgotten`: the run does not keep the batch any more.
 */
export function useWay(run, group) {
  const { item, batch } = group;
  const inRun = (rest) => `v1/runs/${encodeURIComponent(run)}/${rest}`;
  const listed = item === null ? null : inRun(`groups?${new URLSearchParams({ item, limit: ATTEMPTS })}`);
  const path = batch === null ? null : inRun(`batches/${encodeURIComponent(batch)}`);
  const found = useFeed(path, 10, { isFinal: isGone });
  const isForgotten = found.error !== null && isGone(found.error);
  return { listed: useFeed(listed, 60).data, batch: found.data, isForgotten };
}

/** `way` is what `useWay` found. Files of batches have none. */
export function GroupHistory({ run, group, way = NOTHING }) {
  return html`<ol class="way" aria-label="Way of the group">
    ${stepsOf(run, group, way).map(
      ([what, about]) => html`<li key=${what}><b>${what}</b> <span class="quiet">${about}</span></li>`,
    )}
  </ol>`;
}

function stepsOf(run, group, { listed, batch, isForgotten }) {
  const { item, policy_version: version, staleness, lease } = group;
  const steps = [];
  if (item !== null) {
    const all = address("groups", run, { item });
    steps.push(["item", shown(item, 60)]);
    const count = listed === null ? "all" : attempts(listed);
    steps.push(["attempts", html`<a data-page href=${all} title="All groups of this item">${count}</a>`]);
  }
  const old = staleness === null ? "" : `, ${counted(staleness, "version")} old`;
  steps.push(["sampled", version === null ? "version unknown" : `with version ${number(version)}${old}`]);
  const tokens = group.tokens === null ? "" : `, ${counted(group.tokens, "token")}`;
  steps.push(["received", `${ago(group.received_age_s)}${tokens}, ${bytes(group.payload_bytes)}`]);
  if (group.filtered_by !== null) steps.push(["filter", shown(group.filtered_by, 40)]);
  if (group.state in WAITS) steps.push([WAITS[group.state], ""]);
  if (group.batch !== null) {
    const link = isForgotten ? forgotten(group.batch) : batchLink(run, group.batch, batch);
    steps.push([`step ${number(group.step)}`, link]);
  }
  if (group.state === "leased") steps.push(["leased", lease === null ? "" : leaseText(lease)]);
  if (group.ended_age_s !== null) {
    const state = batch?.state === "kept" ? "kept" : group.state;
    steps.push([state, [ago(group.ended_age_s), shown(group.reason ?? "", 60)].filter(Boolean).join(", ")]);
  }
  if (group.checkpoint !== null) steps.push(["saved", `in the checkpoint of step ${number(group.checkpoint)}`]);
  return steps;
}

const ago = (seconds) => `${duration(seconds)} ago`;

// Of a large run, the list looks at its first groups only.
const attempts = ({ groups, cursor, looked_at: all }) =>
  `${counted(groups.length, "group")}${cursor === null ? "" : ` among ${number(all)} that were looked at`}`;

const forgotten = (id) => `batch ${shown(id, 12)}, which is no longer kept`;

function batchLink(run, id, batch) {
  const age = batch?.formed_age_s ?? null;
  return html`<a data-page href=${address("batches", run, { batch: id })}>batch ${shown(id, 12)}</a
    >${age !== null && `, formed ${ago(age)}`}`;
}

function leaseText({ state, delivery_count: count, trainer, expires_s: expires }) {
  const text = [state];
  if (trainer !== null) text.push(`by ${shown(trainer, 40)}`);
  text.push(`handed out ${counted(count, "time")}`);
  if (expires !== null) text.push(`ends in ${duration(expires)}`);
  return text.join(", ");
}
