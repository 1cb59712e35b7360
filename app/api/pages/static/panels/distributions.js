// Freshness and rewards: how values of groups are distributed, of one environment, over the time that the reader chose.
import { html } from "../lib/html.js";
import { measured, number } from "../lib/text.js";
import { EnvironmentBias } from "../parts/bias.js";
import { FRESHNESS, FreshnessCharts, MOST_COLUMNS, RewardCharts, REWARDS } from "../parts/distributions.js";
import { Figures } from "../parts/figures.js";
import { History, useEnvironment, useTimeFeed, useTimePath } from "../parts/history.js";
import { Panel } from "../parts/panel.js";
import { Headline, statusPath, useHeightKept, useStatus } from "../parts/run.js";
import { NoEnvironment, Shown } from "../parts/states.js";
import { TimeBar } from "../parts/time_bar.js";

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

function useHistograms(run, value, environment) {
  const more = { value, environment: environment.name };
  const [path, every] = useTimePath(`v1/runs/${run}/history/histograms`, more, MOST_COLUMNS);
  return [path, useTimeFeed(path, every)];
}

export function FreshnessView({ run }) {
  const forecast = (status) =>
    html`<${Panel} title="Forecast" unit="at the present concurrency" paths=${[statusPath(run)]} wide>
      <${Forecast} forecast=${status.staleness_forecast} />
    <//>`;
  return html`<${OfOne} run=${run} above=${forecast}>
    ${(environment, { environments }) =>
      html`<${Freshness} run=${run} environment=${environment} environments=${environments} />`}
  <//>`;
}

// Its numbers change, and with them the lines that it takes.
function Detail({ text }) {
  return html`<p ref=${useHeightKept()}>${text.slice(0, 1).toUpperCase() + text.slice(1)}.</p>`;
}

function Forecast({ forecast }) {
  if (forecast === null) return html`<p class="quiet">The forecast begins when a trainer has registered.</p>`;
  return html`<${Detail} text=${forecast.detail} />
    <${Figures}
      rows=${[
        ["Policy versions between sampling and training", measured(forecast.versions)],
        ["Batches ahead", measured(forecast.batches_ahead)],
        ["Sequences that wait", number(forecast.waiting_sequences)],
        ["Sequences that are generated now", number(forecast.running_sequences)],
      ]}
    />`;
}

function Freshness({ run, environment, environments }) {
  const histograms = { staleness: useHistograms(run, "staleness", environment) };
  return html`<${History} run=${run} environment=${environment.name} fields=${FRESHNESS} most=${MOST_COLUMNS}>
    ${(history, path) =>
      html`<${FreshnessCharts} run=${run} environment=${environment} environments=${environments}
        history=${history} path=${path} histograms=${histograms} />`}
  <//>`;
}

export function RewardsView({ run }) {
  return html`<${OfOne} run=${run}>
    ${(environment, { environments }) =>
      html`<${Rewards} run=${run} environment=${environment} environments=${environments} />
        <${EnvironmentBias} run=${run} environments=${environments} chosen=${environment} most=${MOST_COLUMNS} />`}
  <//>`;
}

function Rewards({ run, environment, environments }) {
  const histograms = {
    reward: useHistograms(run, "reward", environment),
    length: useHistograms(run, "length", environment),
    waiting: useHistograms(run, "waiting", environment),
  };
  return html`<${History} run=${run} environment=${environment.name} fields=${REWARDS} most=${MOST_COLUMNS}>
    ${(history, path) =>
      html`<${RewardCharts} run=${run} environment=${environment} environments=${environments} history=${history}
        path=${path} histograms=${histograms} />`}
  <//>`;
}
