// What a batch is: its facts, what it has of each environment, the loads of its ranks, and its groups.
import { html } from "../lib/html.js";
import { address } from "../lib/route.js";
import { counted, duration, measured, number, percent, shown } from "../lib/text.js";
import { Bar, Figures } from "./figures.js";
import { Environment, hue, State } from "./names.js";
import { Rows } from "./rows.js";

/** Whether an answer says that the run knows no such batch: it never will again. */
export const isGone = (error) => error.code === "batch_not_found";

// The kind of each state of a batch, for its mark.
const KINDS = {
  sending: "wait",
  sent: "good",
  held: "good",
  returned: "warn",
  quarantined: "bad",
  kept: "good",
  delivered: "good",
  given_back: "idle",
  discarded: "bad",
  ended: "idle",
};

export const stateOf = ({ state }) => html`<${State} kind=${KINDS[state]} word=${state.replace("_", " ")} />`;

export function BatchFacts({ batch }) {
  const { delivery_count: deliveries, formed_age_s: age } = batch;
  return html`<${Figures}
    rows=${[
      ["State", stateOf(batch), batch.rewound ? "brought back by a rewind" : ""],
      ["Step", number(batch.step)],
      ["Formed", age === null ? "not known" : `${duration(age)} ago`],
      ["Handed out", deliveries === null ? "not known any more" : counted(deliveries, "time")],
      ["Trainer", batch.trainer === null ? "–" : shown(batch.trainer, 80)],
      ["Sequences", number(batch.size), `in ${counted(batch.groups, "group")}`],
      ["From the replay buffer", counted(batch.replayed_groups, "group")],
      ["Minimums", batch.relaxed ? "relaxed: an environment got less than its minimum" : "met"],
    ]}
  />`;
}

export function BatchParts({ batch }) {
  const most = Math.max(...batch.environments.map((one) => one.sequences));
  return html`<ul class="batch-parts">
    ${batch.environments.map(
      (one) => html`<li key=${one.environment} data-environment=${one.environment}>
        ${
          one.environment === null
            ? html`<span>no environment</span>`
            : html`<${Environment} id=${one.environment} name=${one.name ?? `environment ${one.environment}`} />`
        }
        <${Bar} value=${one.sequences} most=${most} hue=${one.environment === null ? null : hue(one.environment)} />
        <span class="number">${number(one.sequences)}</span>
      </li>`,
    )}
  </ul>`;
}

/** The load of each rank as a dot, with lines at the mean and at the least that any division can reach. */
export function RankLoads({ ranks }) {
  const { loads, imbalance, bound } = ranks;
  const words =
    `Loads are in ${shown(ranks.cost, 40)}. The largest is ${percent(imbalance)} above the mean. ` +
    `No division could be better than ${percent(bound)}.`;
  return html`<p>${words}</p>
    ${
      loads.length === 0
        ? html`<p class="quiet">The loads are not known.</p>`
        : html`<${Dots} loads=${loads} bound=${bound} words=${words} />`
    }
    ${
      (ranks.taken_by.length > 0 || ranks.acknowledged_by.length > 0) &&
      html`<p class="quiet">
        ${counted(ranks.taken_by.length, "rank")} got the shard,
        ${" "}${number(ranks.acknowledged_by.length)} acknowledged it.
      </p>`
    }`;
}

function Dots({ loads, bound, words }) {
  const mean = loads.reduce((sum, load) => sum + load, 0) / loads.length;
  const limit = mean * (1 + bound);
  const [least, most] = [Math.min(...loads, mean), Math.max(...loads, limit)];
  const margin = (most - least || Math.abs(most) || 1) * 0.1;
  const height = (load) => `${(100 * (load - least + margin)) / (most - least + 2 * margin)}%`;
  return html`<div class="dots" role="img" aria-label=${words}>
      <span class="level" style=${{ bottom: height(mean) }}></span>
      <span class="level bound" style=${{ bottom: height(limit) }}></span>
      ${loads.map(
        (load, rank) => html`<i key=${rank} title=${`rank ${rank}: ${measured(load)}`}
          style=${{ left: `${(100 * (rank + 0.5)) / loads.length}%`, bottom: height(load) }}></i>`,
      )}
    </div>
    <p class="quiet">
      From rank 0 on the left to rank ${number(loads.length - 1)}. Solid line: the mean, ${measured(mean)}. Dashed
      line: the best possible, ${measured(limit)}. The scale is from ${measured(Math.min(...loads))} to
      ${" "}${measured(Math.max(...loads, limit))}, not from 0.
    </p>`;
}

const TITLES = [["Group"], ["Environment"], ["Sequences", "number"], ["Version", "number"], ["From"]];

export function BatchGroups({ run, groups }) {
  if (groups === null) {
    return html`<p class="quiet">
      The run keeps the groups of a batch while it is leased or kept for a rewind.${" "}
      <a data-page href=${address("groups", run, { state: "delivered" })}>Delivered groups</a>
    </p>`;
  }
  return html`<${Rows} label="Groups of the batch" kind="part-row" titles=${TITLES} items=${groups}
    id=${(one) => one.id} height=${32}
    draw=${(one) => html`<div class="entry part-row" data-group=${one.id}>
      <span role="cell"
        ><a data-page href=${address("groups", run, { group: one.id })}><code>${shown(one.id, 48)}</code></a></span
      >
      ${
        one.environment === null
          ? html`<span role="cell">–</span>`
          : html`<${Environment} role="cell" id=${one.environment} name=${one.name ?? one.environment} />`
      }
      <span role="cell" class="number">${number(one.size)}</span>
      <span role="cell" class="number">${one.policy_version === null ? "–" : number(one.policy_version)}</span>
      <span role="cell">${one.replayed ? "replay buffer" : "queue"}</span>
    </div>`} />`;
}
