// Now: is the run healthy, and if not, what blocks it and who must act?
import { isExpired } from "../lib/health.js";
import { html } from "../lib/html.js";
import { useRoute } from "../lib/route.js";
import { bytes, counted, duration, interval, known, measured, number, percent, shown } from "../lib/text.js";
import { EnvironmentRows, presence } from "../parts/environments.js";
import { hue, Environment } from "../parts/names.js";
import { Bar, Figures } from "../parts/figures.js";
import { Explain } from "../parts/explain.js";
import { Panel } from "../parts/panel.js";
import { EXPLAIN, Headline, Notices, statusPath, useStatus } from "../parts/run.js";
import { QuarantineActions, RunActions } from "../parts/operate.js";
import { NoEnvironment, Shown } from "../parts/states.js";
import { OfNow, TimeBar, useUnitOfNow } from "../parts/time_bar.js";
import { Trends } from "../parts/trends.js";

export function NowView({ run }) {
  const feed = useStatus(run);
  return html`<${Shown} feed=${feed}>${(status) => html`<${Now} run=${run} status=${status} />`}<//>`;
}

function Now({ run, status }) {
  const path = statusPath(run);
  const { query } = useRoute();
  const unit = useUnitOfNow();
  return html`<${Headline} status=${status} hasAll />
    <${Notices} status=${status} />
    ${query.get(EXPLAIN) !== null && html`<${Explain} run=${run} status=${status} />`}
    <${RunActions} run=${run} status=${status} />
    <${TimeBar} />
    <${Trends} run=${run} status=${status} />
    <${OfNow} />
    <div class="grid">
      <${Panel} title="Progress" unit=${unit()} paths=${[path]}><${Progress} status=${status} /><//>
      <${Panel} title="Groups" unit=${unit()} paths=${[path]}><${Groups} status=${status} /><//>
      <${Panel} title="Dropped" unit=${unit("groups")} paths=${[path]}><${Dropped} dropped=${status.dropped} /><//>
      <${Panel} title="Leases" unit=${unit()} paths=${[`v1/runs/${run}/batches`]} double>
        <${Leases} run=${run} status=${status} />
      <//>
      <${Panel} title="Queue by environment" unit=${unit("sequences")} paths=${[path]} wide>
        <${Queue} run=${run} status=${status} />
      <//>
    </div>`;
}

function Progress({ status }) {
  const { last_batch_age_s: age, arriving_sequences_per_s: arriving, batch_interval_s: between } = status.pace;
  return html`<${Figures}
    rows=${[
      ["Step", number(status.current_step)],
      ["Policy version", number(status.policy_version)],
      ["Last batch", age === null ? "none yet" : `${duration(age)} ago`],
      ["Next batch", status.ready ? "ready" : expected(status.blocked)],
      ["Batch size", status.batch_size < 0 ? "not set" : counted(status.batch_size, "sequence")],
      ["From batch to batch", known(between, interval)],
      ["Arriving", known(arriving, (perSecond) => `${measured(perSecond)} sequences/s`)],
      ["Oldest waiting", status.oldest_waiting_s === null ? "none" : duration(status.oldest_waiting_s)],
      ["Relaxed batches", number(status.relaxed_batches)],
      ...(status.ranks === null
        ? []
        : [
            [
              "Rank imbalance",
              percent(status.ranks.mean_imbalance),
              `best possible ${percent(status.ranks.mean_bound)}`,
            ],
          ]),
    ]}
  />`;
}

const expected = (blocked) => (blocked?.expected_s == null ? "unknown" : `in about ${duration(blocked.expected_s)}`);

function Groups({ status }) {
  const { groups, bytes: held } = status;
  return html`<${Figures}
    rows=${[
      ["Accepted", number(groups.accepted)],
      ["Queued", number(groups.queued), bytes(held.queued)],
      ["Buffered", number(groups.buffered), bytes(held.buffered)],
      ["Leased", number(groups.leased), bytes(held.leased)],
      ["Delivered", number(groups.delivered)],
      ["Too large for a batch", number(groups.oversized)],
      ["Kept for a rewind", counted(status.kept_batches, "batch", "batches"), bytes(held.kept)],
      ["Without environment", number(status.unowned_groups)],
    ]}
  />`;
}

function Dropped({ dropped }) {
  const rows = Object.entries(dropped).filter(([, count]) => count > 0);
  if (rows.length === 0) return html`<p class="quiet">Nothing was dropped.</p>`;
  return html`<${Figures} rows=${rows.map(([reason, count]) => [shown(reason, 40), number(count)])} />`;
}

const NO_LEASE = "No batch is handed out. A trainer that asks takes the next one.";

// Without a batch, it is as high as with one: what is below stays in place.
function Leases({ run, status }) {
  return html`<table class="leases">
    <thead>
      <tr>
        <th scope="col">Batch</th>
        <th scope="col" class="number">Step</th>
        <th scope="col">State</th>
        <th scope="col" class="number">Deliveries</th>
      </tr>
    </thead>
    <tbody>
      ${status.leases.length === 0 && html`<tr><td class="quiet" colspan="4">${NO_LEASE}</td></tr>`}
      ${status.leases.slice(0, 50).map(
        (lease) => html`<tr key=${lease.batch}>
          <td>
            <code>${shown(lease.batch, 12)}</code>${" "}
            ${
              lease.state === "quarantined" &&
              html`<${QuarantineActions} run=${run} batch=${lease.batch} step=${lease.step} />`
            }
          </td>
          <td class="number">${number(lease.step)}</td>
          <td>${lease.state}${isExpired(lease) && ", lease ended"}</td>
          <td class="number">${lease.delivery_count}</td>
        </tr>`,
      )}
    </tbody>
  </table>
  ${status.leases.length > 50 && html`<p class="quiet">${number(status.leases.length - 50)} more.</p>`}`;
}

function Queue({ run, status }) {
  const { environments } = status;
  if (environments.length === 0) return html`<${NoEnvironment} run=${run} />`;
  const most = Math.max(1, ...environments.map((one) => one.queued_sequences));
  return html`<${EnvironmentRows}
    run=${run}
    status=${status}
    label="Environments"
    height=${36}
    least=${900}
    draw=${(one) => html`<div class="queue" data-environment=${one.id}>
      <${Environment} id=${one.id} name=${one.name} />
      <${Bar} value=${one.queued_sequences} most=${most} hue=${hue(one.id)} />
      <span class="number">${number(one.queued_sequences)}</span>
      <span class="number rate">${rate(one.sequences_per_s)}</span>
      <span class="quiet seen">${presence(one).word}, heard ${duration(one.last_seen_age_s)} ago</span>
    </div>`}
  />`;
}

const rate = (perSecond) => (perSecond == null ? "" : `${measured(perSecond)}/s`);
