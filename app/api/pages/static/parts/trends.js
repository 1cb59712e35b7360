// What the run did over time.
import { html } from "../lib/html.js";
import { Lines } from "./chart.js";
import { each, History } from "./history.js";
import { lineOf } from "./names.js";
import { Panel } from "./panel.js";
import { namesOf } from "./run.js";
import { Stalls } from "./stalls.js";

const FEW = 8; // environments with lines of their own; of more, the run has one
const OF_THE_RUN = ["blocked_s", "blocked_sentence", "trainer_idle_share", "tokens_in", "tokens_out"]
  .concat(["queued_sequences", "batches", "relaxed_batches"])
  .map((name) => `run.${name}`);
const OF_ENVIRONMENTS = ["environments.tokens_in", "environments.tokens_out"];

const areFew = (status) => status.environments.length <= FEW && status.next_after === null;

/** The series of environments that `TrendCharts` draw. */
export const fieldsOf = (status) => (areFew(status) ? OF_ENVIRONMENTS : []);

export function Trends({ run, status }) {
  return html`<${History} run=${run} fields=${[...OF_THE_RUN, ...fieldsOf(status)]}>
    ${(history, path) => html`<${TrendCharts} history=${history} path=${path} status=${status} />`}
  <//>`;
}

export function TrendCharts({ history, path, status }) {
  const isFew = areFew(status);
  const idle = history.run.trainer_idle_share.map((share) => (share === null ? null : 100 * share));
  return html`<${Panel} title="Stalls" unit="what blocked the run from training" paths=${[path]} wide>
        <${Stalls} times=${history.times_s} stepSeconds=${history.step_s} blocked=${history.run.blocked_s}
          said=${history.run.blocked_sentence} names=${namesOf(status)} />
      <//>
      <div class="grid charts">
        <${Flow} title="In" path=${path} history=${history} status=${status} column="tokens_in" isFew=${isFew} />
        <${Flow} title="Out" path=${path} history=${history} status=${status} column="tokens_out" isFew=${isFew} />
        <${Panel} title="Queue" unit=${`sequences, ${each(history, "mean")}`} paths=${[path]}>
          <${Lines} title="Sequences in the queue" times=${history.times_s} step=${history.step_s}
            series=${[{ label: "queued", values: history.run.queued_sequences, token: "accent" }]} />
        <//>
        <${BatchCounts} history=${history} path=${path} />
        <${Panel} title="Trainer idle" unit="% of the time" paths=${[path]}>
          <${Lines} title="Percent of the time in which no trainer held a batch" times=${history.times_s}
            step=${history.step_s} most=${100}
            series=${[{ label: "idle", values: idle, token: "accent" }]} />
        <//>
      </div>`;
}

/** Batches over time, and those with less than a minimum. */
export function BatchCounts({ history, path }) {
  return html`<${Panel} title="Batches" unit=${each(history, "batches")} paths=${[path]}>
    <${Lines} title="Batches" times=${history.times_s} step=${history.step_s}
      series=${[
        { label: "new", values: history.run.batches, token: "accent" },
        { label: "with less than a minimum", values: history.run.relaxed_batches, token: "warn", dash: 1 },
      ]} />
  <//>`;
}

function Flow({ title, path, history, status, column, isFew }) {
  const ids = new Map(status.environments.map((one) => [one.name, one.id]));
  const own = Object.entries(history.environments).filter(([name]) => ids.has(name));
  const series = own.map(([name, values]) => ({ label: name, values: values[column], ...lineOf(ids.get(name)) }));
  const all = [{ label: "all environments", values: history.run[column], token: "accent" }];
  const unit = each(history, "tokens");
  return html`<${Panel} title=${title} unit=${unit} paths=${[path]}>
    <${Lines} title=${`${title}: ${unit}`} times=${history.times_s} step=${history.step_s}
      series=${isFew ? series : all} />
  <//>`;
}
