// Shares: what was promised to each environment, what it got, and how that was over time.
import { html } from "../lib/html.js";
import { own } from "../lib/series.js";
import { counted, measured, percent } from "../lib/text.js";
import { MOST_COLUMNS } from "../parts/distributions.js";
import { Bullet } from "../parts/figures.js";
import { History } from "../parts/history.js";
import { Environment, hue } from "../parts/names.js";
import { ShareAction } from "../parts/operate.js";
import { Panel } from "../parts/panel.js";
import { Headline, statusPath, useStatus } from "../parts/run.js";
import { Rows } from "../parts/rows.js";
import { Sparkline } from "../parts/sparkline.js";
import { NoEnvironment, Shown } from "../parts/states.js";
import { TimeBar } from "../parts/time_bar.js";
import { BatchCounts } from "../parts/trends.js";

const FIELDS = ["run.batches", "run.relaxed_batches"].concat(
  ["share_got", "share_promised", "owed_sequences"].map((name) => `environments.${name}`),
);

export function SharesView({ run }) {
  const feed = useStatus(run);
  return html`<${Shown} feed=${feed}>
    ${(status) =>
      html`<${Headline} status=${status} />
        ${
          status.environments.length === 0
            ? html`<${NoEnvironment} run=${run} />`
            : html`<${TimeBar} />
                <${History} run=${run} fields=${FIELDS} most=${MOST_COLUMNS}>
                  ${(history, path) => html`<${Shares} run=${run} status=${status} history=${history} path=${path} />`}
                <//>`
        }`}
  <//>`;
}

function Shares({ run, status, history, path }) {
  return html`<div class="grid charts">
      <${BatchCounts} history=${history} path=${path} />
    </div>
    <${Panel} title="Promised and got" unit="share of sequences handed out" paths=${[statusPath(run), path]} wide>
      <${List} run=${run} status=${status} history=${history} />
    <//>`;
}

function List({ run, status, history }) {
  const { environments } = status;
  const ends = environments.map((one) => Math.max(one.share_got ?? 0, one.share_promised));
  const most = Math.max(0.01, ...ends);
  const known = Object.values(history.environments);
  const top = (names) => Math.max(0, ...known.flatMap((own) => names.flatMap((name) => own[name])));
  const [mostShare, mostOwed] = [Math.max(0.01, top(["share_got", "share_promised"])), top(["owed_sequences"])];
  const relaxed = `${counted(status.relaxed_batches, "batch", "batches")} had less than a minimum.`;
  const gotNone = environments.every((one) => one.share_got === null);
  return html`<p class="quiet">
      ${gotNone ? "No batch was handed out yet. " : ""}Bar: what the environment got so far. Tick: what it was
      promised. Band: what it may have. A full bar is ${percent(most)}. ${relaxed}
    </p>
    <p class="quiet over-words">
      Over time: got (line) and promised (dashes), up to ${percent(mostShare)}${
        mostOwed > 0 && `; then what is owed, up to ${counted(Math.round(mostOwed), "sequence")}`
      }.
    </p>
    <${Rows}
      label="Shares of environments"
      items=${environments}
      id=${(one) => one.id}
      height=${40}
      least=${1200}
      draw=${(one) =>
        html`<${Row} run=${run} one=${one} most=${most} own=${own(history.environments, one.name)}
          mostShare=${mostShare} mostOwed=${mostOwed} />`}
    />`;
}

function Row({ run, one, most, own, mostShare, mostOwed }) {
  return html`<div class="share" data-environment=${one.id}>
    <${Environment} id=${one.id} name=${one.name} />
    <${Bullet}
      got=${one.share_got}
      promised=${one.share_promised}
      limit=${one.share_limit}
      most=${most}
      hue=${hue(one.id)}
    />
    <span class="number">${one.share_got === null ? "–" : percent(one.share_got)}</span>
    <span class="quiet promised">${promised(one)}</span>
    <span class="over">
      ${
        own !== undefined &&
        html`<${Sparkline} title="Share over time" most=${mostShare}
          series=${[["promised", own.share_promised], ["got", own.share_got]]} />`
      }
    </span>
    <span class="over debt">
      ${
        own !== undefined &&
        mostOwed > 0 &&
        html`<${Sparkline} title=${`Owed over time, now ${measured(one.owed_sequences)}`} most=${mostOwed}
          series=${[["owed", own.owed_sequences]]} />`
      }
    </span>
    <span class="owed" data-kind=${one.owed_sequences > 0 ? "warn" : null}>
      ${one.owed_sequences > 0 ? `owed ${counted(one.owed_sequences, "sequence")}` : ""}
    </span>
    <${ShareAction} run=${run} environment=${one} />
  </div>`;
}

function promised({ share_promised: least, share_limit: most }) {
  const parts = [];
  if (least > 0) parts.push(`at least ${percent(least)}`);
  if (most !== null) parts.push(`at most ${percent(most)}`);
  return parts.join(", ");
}
