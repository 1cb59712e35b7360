// What operators do with a run: pause it, limit it, change shares, disconnect environments.
import { useFeed } from "../lib/feeds.js";
import { html } from "../lib/html.js";
import { counted, number, percent, shown } from "../lib/text.js";
import { Action, useMay } from "./action.js";
import { exact } from "./numbers.js";

const runPath = (run) => `v1/runs/${encodeURIComponent(run)}`;

/** A number in a form: null if it is empty. */
const numeric = (text) => (text === "" ? null : Number(text));

/** The values of a form that differ from the present ones, or null if none does. */
function changed(values, present) {
  const others = Object.entries(values)
    .map(([name, text]) => [name, numeric(text)])
    .filter(([name, value]) => value !== present[name]);
  return others.length === 0 ? null : Object.fromEntries(others);
}

/** A field for a number, in a form. */
export const Field = ({ name, title, value, ...more }) =>
  html`<label>
    ${title} <input type="number" name=${name} min="0" step="any" defaultValue=${value ?? ""} ...${more} />
  </label>`;

const PAUSES = [
  {
    setting: "intake_paused",
    what: "intake",
    pause: `Environments start no more groups. Groups that are under way are refused: the SDK keeps them and sends them
      again later. Queued groups stay, and trainers go on.`,
    resume: "Environments may start groups again, and send those that they kept.",
  },
  {
    setting: "serving_paused",
    what: "serving",
    pause: `The run hands out no more batches, and trainers wait. They keep the batches that they hold, and may
      acknowledge them. Groups stay in the queue.`,
    resume: "The run hands out batches again, first to trainers that wait.",
  },
];

/** Pause or resume a run, and change its limits. */
export function RunActions({ run, status }) {
  if (status.blocked?.reason === "archived") return null;
  return html`<div class="actions">
    ${PAUSES.map(({ setting, what, pause, resume }) => {
      const paused = status[setting];
      const verb = paused ? "Resume" : "Pause";
      return html`<${Action}
        key=${setting}
        needs="operate"
        label=${`${verb} ${what}`}
        title=${`${verb} ${what} of ${shown(run, 64)}`}
        request=${{ method: "PATCH", path: runPath(run), body: { [setting]: !paused } }}
        done=${`${what[0].toUpperCase()}${what.slice(1)} ${paused ? "goes on" : "is paused"}.`}
      >
        <p>${paused ? resume : pause}</p>
      <//>`;
    })}
    <${Limits} run=${run} />
  </div>`;
}

const LIMITS = [
  ["max_queued_groups", "Groups in the queue", { min: 1, step: 1 }],
  ["max_queued_bytes", "Bytes in the queue", { min: 1, step: 1 }],
  ["max_staleness", "Staleness, versions", { step: 1 }],
  ["max_age_s", "Age of a waiting group, s", { min: 0.001 }],
  ["max_requests_per_s", "Requests per second", { min: 0.001 }],
  ["max_bytes_per_s", "Bytes per second", { min: 1 }],
  ["max_groups_per_s", "Groups per second", { min: 0.001 }],
  ["max_connections", "Open connections", { min: 1, step: 1 }],
];

function Limits({ run }) {
  const { data } = useFeed(useMay("operate") ? runPath(run) : null, 10);
  if (data === null) return null;
  const request = (values) => {
    const body = changed(values, data);
    return body && { method: "PATCH", path: runPath(run), body };
  };
  return html`<${Action}
    needs="operate"
    label="Change limits"
    title=${`Change limits of ${shown(run, 64)}`}
    request=${request}
    fields=${LIMITS.map(
      ([name, title, more]) =>
        html`<${Field} key=${name} name=${name} title=${title} value=${data[name]} ...${more} />`,
    )}
    done="The limits are changed."
  >
    <p>An empty field means no limit. Groups that exceed a new limit of staleness or age leave the queue at once.</p>
  <//>`;
}

/** Change the shares of an environment. */
export function ShareAction({ run, environment }) {
  const { id, name, share_promised: least, share_limit: most, weight } = environment;
  const present = { min_share: least || null, max_share: most, weight };
  const request = (values) => {
    const body = changed(values, present);
    return body && { method: "PATCH", path: `${runPath(run)}/environments/${id}`, body };
  };
  const share = { max: 1 };
  return html`<${Action}
    needs="operate"
    label="Change"
    name=${`Change shares of ${shown(name, 64)}`}
    title=${`Change shares of ${shown(name, 64)}`}
    request=${request}
    fields=${[
      html`<${Field} key="min" name="min_share" title="Minimum share, 0 to 1" value=${least || null} ...${share} />`,
      html`<${Field} key="max" name="max_share" title="Maximum share, 0 to 1" value=${most} ...${share} />`,
      html`<${Field} key="weight" name="weight" title="Weight" value=${weight} min=${Math.min(0, weight)} required />`,
    ]}
    done=${(now) => html`<p>${shown(name, 64)} now gets ${words(now)}.</p>`}
  >
    <p>They apply from the next batch. A worker that joins with other values replaces them. Empty means none.</p>
  <//>`;
}

const words = ({ share_promised: least, share_limit: most, weight }) =>
  [
    least > 0 ? `at least ${percent(least)}` : "no minimum",
    most === null ? "no maximum" : `at most ${percent(most)}`,
    `weight ${exact(weight)}`,
  ].join(", ");

/** Disconnect an environment with all its members. */
export function DisconnectAction({ run, environment }) {
  const { id, name, members, queued_groups: queued } = environment;
  return html`<${Action}
    needs="produce"
    label="Disconnect"
    title=${`Disconnect ${shown(name, 64)}`}
    request=${{ method: "DELETE", path: `${runPath(run)}/environments/${id}` }}
    done=${`${shown(name, 64)} has left.`}
  >
    <p>
      ${counted(members, "member")} of it will leave, and its minimum share no longer counts. Its${" "}
      ${counted(queued, "queued group")} stay. A worker process that still runs joins again by itself: stop it first.
    </p>
  <//>`;
}

/** Release or drop a quarantined batch. */
export function QuarantineActions({ run, batch, step }) {
  const path = `${runPath(run)}/batches/${encodeURIComponent(batch)}`;
  return html`<span class="actions">
    <${Action}
      needs="train"
      label="Release"
      name=${`Release batch of step ${step}`}
      title=${`Release the quarantined batch of step ${number(step)}`}
      request=${{ method: "POST", path: `${path}/nack`, body: { reason: "released by an operator" } }}
      done="The groups are queued again."
    >
      <p>Its groups go to the front of the queue, and come again in other batches. A broken group may fail again.</p>
    <//>
    <${Action}
      needs="operate"
      label="Drop"
      name=${`Drop batch of step ${step}`}
      title=${`Drop the quarantined batch of step ${number(step)}`}
      request=${{ method: "DELETE", path }}
      done="The batch is dropped, with its groups."
    >
      <p>Its groups are deleted for good, and count as dropped: quarantined. To train on them, release it instead.</p>
    <//>
  </span>`;
}
