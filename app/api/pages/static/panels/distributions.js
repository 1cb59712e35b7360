// Freshness and rewards: how values of groups are distributed, of one environment, over the time that the reader chose.
import { useFeed } from "../lib/feeds.js";
import { html } from "../lib/html.js";
import { address, go } from "../lib/route.js";
import { measured, number } from "../lib/text.js";
import { Bias, EnvironmentBias, TimeBias } from "../parts/bias.js";
import { Lines, QuantileLines } from "../parts/chart.js";
import { DensityMap } from "../parts/density.js";
import { Figures } from "../parts/figures.js";
import { each, History, TimeBar, useEnvironment, useTimePath } from "../parts/history.js";
import { lineOf } from "../parts/names.js";
import { Panel } from "../parts/panel.js";
import { Headline, statusPath, useStatus } from "../parts/run.js";
import { NoEnvironment, Shown } from "../parts/states.js";

const LEAST_STEP_S = 60; // a minute of groups makes a distribution, and the answer has few of them

/** Show `children(environment, status)` for the environment in the address. */
function OfOne({ run, above, children }) {
  const feed = useStatus(run);
  return html`<${Shown} feed=${feed}>
    ${(status) =>
      html`<${Headline} status=${status} />
        ${above?.(status)}
        ${
          status.environments.length === 0
            ? html`<${NoEnvironment} run=${run} />`
            : html`<${Chosen} status=${status} draw=${children} />`
        }`}
  <//>`;
}

function Chosen({ status, draw }) {
  const environment = useEnvironment(status.environments);
  return html`<${TimeBar} environments=${status.environments} />${draw(environment, status)}`;
}

const NOTHING = html`<p class="quiet">No data for this environment in this time. Choose a longer time.</p>`;

/** The median and the mean over time, in the band from the first to the ninth tenth. */
function Quantiles({ title, unit, history, path, own }) {
  return html`<${Panel} title=${title} unit=${unit} paths=${[path]}>
    <${QuantileLines} title=${title} unit=${unit} times=${history.times_s} own=${own} />
  <//>`;
}

function useHistograms(run, value, environment) {
  const more = { value, environment: environment.name };
  const [path, every] = useTimePath(`v1/runs/${run}/history/histograms`, more, LEAST_STEP_S);
  return [path, useFeed(path, every)];
}

/** A heat map with quantile lines. `of` is `generated` or `trained`, `own` the quantiles of the same groups. */
function Density({ title, unit, run, environment, feed, path, of, history, historyPath, own }) {
  const open = (edge) => go(address("groups", run, { environment: environment.id, score_min: edge }));
  return html`<${Panel} title=${title} unit=${unit} paths=${[path, historyPath]}>
    <ul class="labels" aria-label=${`${title}: latest values`}>
      ${["p10", "p50", "p90", "mean"].map(
        (name) => html`<li key=${name}>${name === "p50" ? "median" : name} <b>${latest(own[name])}</b></li>`,
      )}
    </ul>
    <${Shown} feed=${feed}>
      ${(found) =>
        html`<${DensityMap} title=${title} times=${found.times_s} edges=${found.edges} counts=${found[of]}
          quantiles=${{ times: history.times_s, ...own }} steps=${history.run.step}
          open=${feed.data.value === "reward" ? open : null} />`}
    <//>
  <//>`;
}

function latest(values) {
  const value = values.findLast((one) => one !== null);
  return value === undefined ? "–" : measured(value);
}

export function FreshnessView({ run }) {
  const forecast = (status) =>
    html`<${Panel} title="Forecast" unit="at the present concurrency" paths=${[statusPath(run)]} wide>
      <${Forecast} forecast=${status.staleness_forecast} />
    <//>`;
  return html`<${OfOne} run=${run} above=${forecast}>
    ${(environment) => html`<${Freshness} run=${run} environment=${environment} />`}
  <//>`;
}

function Forecast({ forecast }) {
  if (forecast === null) return html`<p class="quiet">The forecast begins when a trainer has registered.</p>`;
  return html`<p>${forecast.detail.slice(0, 1).toUpperCase() + forecast.detail.slice(1)}.</p>
    <${Figures}
      rows=${[
        ["Policy versions between sampling and training", measured(forecast.versions)],
        ["Batches ahead", measured(forecast.batches_ahead)],
        ["Sequences that wait", number(forecast.waiting_sequences)],
        ["Sequences that are generated now", number(forecast.running_sequences)],
      ]}
    />`;
}

function Freshness({ run, environment }) {
  const [path, feed] = useHistograms(run, "staleness", environment);
  const fields = ["run.step", "run.dropped", "environments.staleness_out", "environments.waiting_s"];
  return html`<${History} run=${run} environment=${environment.name} fields=${fields} least=${LEAST_STEP_S}>
    ${(history, historyPath) => {
      const [own] = Object.values(history.environments);
      return html`<div class="grid charts">
        ${
          own === undefined
            ? NOTHING
            : html`<${Density} title="Staleness at delivery" unit="policy versions" run=${run}
                  environment=${environment} feed=${feed} path=${path} of="trained" history=${history}
                  historyPath=${historyPath} own=${own.staleness_out} />
                <${Quantiles} title="Waiting" unit="seconds from arrival to delivery" history=${history}
                  path=${historyPath} own=${own.waiting_s} />`
        }
        <${Panel} title="Dropped" unit=${`${each(history, "groups")}, of all environments`} paths=${[historyPath]}>
          <${Drops} history=${history} />
        <//>
      </div>`;
    }}
  <//>`;
}

function Drops({ history }) {
  const reasons = Object.entries(history.run.dropped);
  if (reasons.length === 0) return html`<p class="quiet">Nothing was dropped in this time.</p>`;
  return html`<${Lines} title="Dropped groups by reason" times=${history.times_s}
    series=${reasons.map(([reason, values], at) => ({ label: reason, values, ...lineOf(at) }))} />`;
}

export function RewardsView({ run }) {
  return html`<${OfOne} run=${run}>
    ${(environment, status) =>
      html`<${Rewards} run=${run} environment=${environment} />
        <${EnvironmentBias} run=${run} environments=${status.environments} chosen=${environment} least=${LEAST_STEP_S} />`}
  <//>`;
}

const OF_REWARDS = ["reward_in", "reward_out", "length_in", "length_out"].concat(
  ["sequences_in", "sequences_out", "waiting_s"],
);

function Rewards({ run, environment }) {
  const [rewardPath, rewards] = useHistograms(run, "reward", environment);
  const [lengthPath, lengths] = useHistograms(run, "length", environment);
  const [waitingPath, waiting] = useHistograms(run, "waiting", environment);
  const fields = ["run.step"].concat(OF_REWARDS.map((name) => `environments.${name}`));
  return html`<${History} run=${run} environment=${environment.name} fields=${fields} least=${LEAST_STEP_S}>
    ${(history, path) => {
      const [own] = Object.values(history.environments);
      if (own === undefined) return NOTHING;
      const density = { run, environment, feed: rewards, path: rewardPath, history, historyPath: path };
      const unit = "mean of each group";
      return html`<div class="grid charts">
        <${Density} title="Rewards generated" unit=${unit} of="generated" own=${own.reward_in} ...${density} />
        <${Density} title="Rewards trained on" unit=${unit} of="trained" own=${own.reward_out} ...${density} />
        <${Bias} title="Bias by reward" unit="share of groups by mean reward" feed=${rewards} path=${rewardPath} />
        <${Bias} title="Bias by length" unit="share of groups by tokens in a sequence" feed=${lengths}
          path=${lengthPath} />
        <${Quantiles} title="Lengths generated" unit="tokens in a sequence" history=${history} path=${path}
          own=${own.length_in} />
        <${Quantiles} title="Lengths trained on" unit="tokens in a sequence" history=${history} path=${path}
          own=${own.length_out} />
        <${TimeBias} history=${history} own=${own} words=${[
          [rewards, "development"],
          [lengths, "development"],
          [waiting, "shift"],
        ]} paths=${[path, rewardPath, lengthPath, waitingPath]} />
      </div>`;
    }}
  <//>`;
}
