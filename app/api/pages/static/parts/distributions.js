// Charts of values of groups, of one environment: freshness and rewards.
import { html } from "../lib/html.js";
import { address, go } from "../lib/route.js";
import { measured, number } from "../lib/text.js";
import { Bias, TimeBias } from "./bias.js";
import { latestAt, Lines, QuantileLines } from "./chart.js";
import { DensityMap } from "./density.js";
import { lineOfReason } from "./drop_reasons.js";
import { each } from "./history.js";
import { Panel } from "./panel.js";
import { Shown } from "./states.js";

/** The most spans of a distribution. An hour then has spans of a minute, each with enough groups. */
export const MOST_COLUMNS = 125;

const LATE_S = 10; // groups are written down up to so much later than they came

export const FRESHNESS = ["run.step", "run.dropped", "environments.staleness_out", "environments.waiting_s"];
export const REWARDS = ["run.step"].concat(
  ["reward_in", "reward_out", "length_in", "length_out", "sequences_in", "sequences_out", "waiting_s"].map(
    (name) => `environments.${name}`,
  ),
);

const WITH_SERIES = 256; // environments: the first to register

function NoSeries({ environment, environments }) {
  const isOther = environments.indexOf(environment) >= WITH_SERIES;
  return html`<p class="quiet">
    ${
      isOther
        ? `Only the first ${WITH_SERIES} environments have charts of their own. This one counts under "all others".`
        : "No data for this environment in this time. Choose a longer time."
    }
  </p>`;
}

/** The median and the mean over time, in the band from the first to the ninth tenth. */
function Quantiles({ title, unit, history, path, own }) {
  return html`<${Panel} title=${title} unit=${unit} paths=${[path]}>
    <${QuantileLines} title=${title} unit=${unit} times=${history.times_s} step=${history.step_s} own=${own} />
  <//>`;
}

/**
 * A heat map with quantile lines. `of` is `generated` or `trained`, `own` the quantiles of the same groups. `isWhole`:
 * the values are whole numbers.
 */
function Density({ title, unit, run, environment, feed, path, of, history, historyPath, own, isWhole = false }) {
  const open = (time, bin) => {
    const { times_s: times, step_s: length, edges } = feed.data;
    const when =
      of === "trained"
        ? stepsAt(history, times[time])
        : { received_from_s: times[time] - LATE_S, received_to_s: times[time] + length };
    go(address("groups", run, { environment: environment.id, ...scoresOf(edges, bin), ...when }));
  };
  const at = own.mean.findLastIndex((one) => one !== null);
  return html`<${Panel} title=${title} unit=${unit} paths=${[path, historyPath]}>
    <ul class="labels" aria-label=${`${title}: latest values`}>
      ${["p10", "p50", "p90", "mean"].map(
        (name) => html`<li key=${name}>
          ${name === "p50" ? "median" : name} <b>${valueOf(own[name][at], isWhole && name !== "mean")}</b>
        </li>`,
      )}
      ${at >= 0 && html`<li class="quiet when">${latestAt(history.times_s, history.step_s, at)}</li>`}
    </ul>
    <${Shown} feed=${feed}>
      ${(found) =>
        html`<${DensityMap} title=${title} times=${found.times_s} step=${found.step_s} edges=${found.edges}
          counts=${found[of]} quantiles=${{ times: history.times_s, ...own }} steps=${history.run.step}
          isWhole=${isWhole}
          open=${feed.data.value === "reward" ? open : null} />`}
    <//>
  <//>`;
}

// The outermost bins also have all values beyond them.
const scoresOf = (edges, bin) => ({
  score_min: bin === 0 ? null : edges[bin],
  score_max: bin === edges.length - 2 ? null : edges[bin + 1],
});

/**
 * The steps whose batches were handed out in a span: those after the last one known before it, up to the first one
 * known since it began. A span in which nothing happened has no step of its own.
 */
export function stepsAt({ times_s: times, run }, time) {
  const known = times.map((begin, place) => [begin, run.step[place]]).filter(([, step]) => step !== null);
  const [, before = null] = known.findLast(([begin]) => begin < time) ?? [];
  const [, last = null] = known.find(([begin]) => begin >= time) ?? [];
  const first = before === null ? null : before + 1;
  return { step_min: first === null || last === null ? first : Math.min(first, last), step_max: last };
}

const valueOf = (value, isWhole) =>
  value == null ? "–" : isWhole ? number(Math.round(value)) : measured(value);

/**
 * `environments` are those of the status, one of them `environment`. `histograms` are `[path, feed]` by value, and
 * `history` has the series `FRESHNESS`.
 */
export function FreshnessCharts({ run, environment, environments, history, path: historyPath, histograms }) {
  const [own] = Object.values(history.environments);
  const [path, feed] = histograms.staleness;
  return html`<div class="grid charts">
    ${
      own === undefined
        ? html`<${NoSeries} environment=${environment} environments=${environments} />`
        : html`<${Density} title="Staleness at delivery" unit="policy versions" run=${run} environment=${environment}
              feed=${feed} path=${path} of="trained" history=${history} historyPath=${historyPath}
              own=${own.staleness_out} isWhole />
            <${Quantiles} title="Waiting" unit="seconds from arrival to delivery" history=${history}
              path=${historyPath} own=${own.waiting_s} />`
    }
    <${Dropped} history=${history} path=${historyPath} />
  </div>`;
}

function Dropped({ history, path }) {
  const { dropped } = history.run;
  const reasons = Object.keys(dropped);
  return html`<${Panel} title="Dropped" unit=${`${each(history, "groups")}, of all environments`} paths=${[path]}>
    ${
      reasons.length === 0
        ? html`<p class="quiet">Nothing was dropped in this time.</p>`
        : html`<${Lines} title="Dropped groups by reason" times=${history.times_s} step=${history.step_s}
            series=${reasons.map((reason) => ({
              label: reason,
              values: dropped[reason],
              ...lineOfReason(reason),
            }))} />`
    }
  <//>`;
}

/** As `FreshnessCharts`; `history` has the series `REWARDS`. */
export function RewardCharts({ run, environment, environments, history, path, histograms }) {
  const [own] = Object.values(history.environments);
  if (own === undefined) return html`<${NoSeries} environment=${environment} environments=${environments} />`;
  const { reward, length, waiting } = histograms;
  const density = { run, environment, feed: reward[1], path: reward[0], history, historyPath: path };
  const unit = "mean of each group";
  return html`<div class="grid charts">
    <${Density} title="Rewards generated" unit=${unit} of="generated" own=${own.reward_in} ...${density} />
    <${Density} title="Rewards trained on" unit=${unit} of="trained" own=${own.reward_out} ...${density} />
    <${Bias} title="Bias by reward" unit="share of groups by mean reward" feed=${reward[1]} path=${reward[0]} />
    <${Bias} title="Bias by length" unit="share of groups by tokens in a sequence" feed=${length[1]}
      path=${length[0]} />
    <${Quantiles} title="Lengths generated" unit="tokens in a sequence" history=${history} path=${path}
      own=${own.length_in} />
    <${Quantiles} title="Lengths trained on" unit="tokens in a sequence" history=${history} path=${path}
      own=${own.length_out} />
    <${TimeBias} history=${history} own=${own} words=${[
      [reward[1], "development"],
      [length[1], "development"],
      [waiting[1], "shift"],
    ]} paths=${[path, reward[0], length[0], waiting[0]]} />
  </div>`;
}
