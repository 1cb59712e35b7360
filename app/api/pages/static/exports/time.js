// A time of a run as a file: the ledger, the charts of the views, and their numbers.
import { ask } from "../lib/api.js";
import { health } from "../lib/health.js";
import { html } from "../lib/html.js";
import { OfflineFile } from "../lib/offline.js";
import { own } from "../lib/series.js";
import { counted, duration, number, shown } from "../lib/text.js";
import { moment } from "../lib/time.js";
import { Lines } from "../parts/chart.js";
import { FreshnessCharts, MOST_COLUMNS, RewardCharts } from "../parts/distributions.js";
import { each, environmentOf, timePath } from "../parts/history.js";
import { ItemsOverTime } from "../parts/items_over_time.js";
import { Ledger } from "../parts/ledger.js";
import { Environment, lineOf, Sentence } from "../parts/names.js";
import { exact, Numbers, SeriesNumbers } from "../parts/numbers.js";
import { Panel } from "../parts/panel.js";
import { namesOf, statusPath } from "../parts/run.js";
import { fieldsOf, TrendCharts } from "../parts/trends.js";

const ENVIRONMENTS = 8; // with charts of their own
const NO_NUMBERS = { curricula: {}, blocked_sentence: [] };
const VALUES = ["reward", "length", "staleness", "waiting"];

/** `time` is that of `useTime`. `wanted` is the id or the name of the environment that comes first, or null. */
export async function timeFile(signal, { run, time, wanted }) {
  const get = async (path) => JSON.parse(await ask(path, signal));
  const place = `v1/runs/${encodeURIComponent(run)}/history`;
  const status = await get(statusPath(run));
  const path = timePath(place, time, { fields: ["run", ...fieldsOf(status)].join(",") });
  const history = await get(path);
  const [from, to] = [history.from_s, history.to_s].map((at) => moment.format(at * 1000));
  const file = new OfflineFile(`Run ${run} from ${from} to ${to}`, signal);
  await file.add(html`<${Overview} status=${status} history=${history} />`);
  if (history.times_s.length > 0) {
    const fixed = { ...time, from: history.from_s, to: history.to_s }; // so that all charts are of the same time
    const asked = { run, place, get, status, fixed };
    await addRun(file, { ...asked, history });
    await addEnvironments(file, { ...asked, wanted });
  }
  return { file: await file.finish(), name: `${run}-${stamp(history.from_s)}-${stamp(history.to_s)}.html` };
}

async function addRun(file, { run, place, get, status, fixed, history }) {
  const parts = [
    html`<${TrendCharts} history=${history} status=${status} />`,
    html`<${Others} history=${history} />`,
    html`<${SeriesNumbers} label="The run" times=${history.times_s} series=${{ ...history.run, ...NO_NUMBERS }} />`,
  ];
  if (status.environments.length > 0) {
    const shares = await get(timePath(`${place}/shares`, fixed, { count: "sequences" }, MOST_COLUMNS));
    parts.push(html`<${Shares} shares=${shares} />`);
  }
  if (Object.keys(history.run.curricula).length > 0) {
    const { curricula } = await get(`v1/runs/${encodeURIComponent(run)}/curricula`);
    for (const one of curricula) parts.push(html`<${Curriculum} history=${history} curriculum=${one} />`);
  }
  for (const [at, part] of parts.entries()) {
    if (await file.add(part)) continue;
    file.leaveOut(`${number(parts.length - at)} of ${counted(parts.length, "part")} about the run`);
    return;
  }
}

const stamp = (seconds) => new Date(seconds * 1000).toISOString().replaceAll(/[-:]|\.\d+/g, "");

function Overview({ status, history }) {
  const { word, sentence } = health(status);
  const { times_s: times, step_s: step } = history;
  return html`<p class="quiet">
      ${
        times.length === 0
          ? "Nothing is known of this time."
          : `${counted(times.length, "span")} of ${duration(step)}. Charts have gaps where nothing is known.`
      }
    </p>
    <h2>The run when it was exported</h2>
    <p><b>${word}</b> <${Sentence} text=${sentence} names=${namesOf(status)} /></p>
    <h2>Ledger <span class="unit">of the whole run, up to the export</span></h2>
    <section aria-label="Token ledger"><${Ledger} ledger=${status.ledger} /></section>`;
}

const isKnown = (values) => values.some((value) => value !== null);

/** What only some runs have. */
function Others({ history }) {
  const { rank_imbalance: imbalance, replay_age_versions: age, replay_uses: uses } = history.run;
  const found = [
    ["Imbalance between ranks", "largest load over mean load, minus 1", imbalance],
    ["Age of samples", "policy versions, mean", age],
    ["Uses of retired chunks", each(history, "mean"), uses],
  ].filter(([, , values]) => isKnown(values));
  if (found.length === 0) return null;
  return html`<div class="grid charts">
    ${found.map(
      ([title, unit, values]) => html`<${Panel} key=${title} title=${title} unit=${unit}>
        <${Lines} title=${title} times=${history.times_s} step=${history.step_s}
          series=${[{ label: "mean", values, token: "accent" }]} />
      <//>`,
    )}
  </div>`;
}

/** What of the sequences each environment generated, and what of them was trained on. */
function Shares({ shares }) {
  const rows = shares.environments.map((one) => [
    one.name === "" ? "all others" : shown(one.name, 80),
    ...[one.generated, one.trained, one.generated_share, one.trained_share, one.difference].map(exact),
  ]);
  const columns = ["Environment", "Generated", "Trained on", "Share of generated", "Share of trained on", "Difference"];
  return html`<h2>Bias by environment <span class="unit">shares in all sequences</span></h2>
    <p>${shown(shares.shift ?? "Nothing was both generated and trained on in this time.", 500)}</p>
    <${Numbers} label="Bias by environment" columns=${columns} rows=${rows} />`;
}

function Curriculum({ history, curriculum }) {
  const series = own(history.run.curricula, curriculum.name);
  return html`<h2>Items of the curriculum ${shown(curriculum.name, 48)} by mean reward</h2>
    <${ItemsOverTime} history=${history} series=${series} curriculum=${curriculum} />`;
}

async function addEnvironments(file, { run, place, get, status, fixed, wanted }) {
  const { environments } = status;
  const first = environmentOf(environments, wanted);
  const others = environments.filter((one) => one !== first);
  const chosen = (first === undefined ? others : [first, ...others]).slice(0, ENVIRONMENTS);
  const of = counted(status.registered_environments, "environment");
  for (const [at, environment] of chosen.entries()) {
    const more = { environment: environment.name };
    const fields = "run.step,run.dropped,environments";
    const history = await get(timePath(place, fixed, { ...more, fields }, MOST_COLUMNS));
    const found = {};
    for (const value of VALUES) {
      found[value] = await get(timePath(`${place}/histograms`, fixed, { ...more, value }, MOST_COLUMNS));
    }
    const view = html`<${OneEnvironment} run=${run} environment=${environment} history=${history} found=${found} />`;
    if (await file.add(view)) continue;
    file.leaveOut(`charts of ${number(status.registered_environments - at)} of ${of}`);
    return;
  }
  const left = status.registered_environments - chosen.length;
  if (left > 0) {
    const why = `a file has those of ${ENVIRONMENTS}: the one that was chosen, then the first to register`;
    file.leaveOut(`charts of ${number(left)} of ${of}`, why);
  }
}

function OneEnvironment({ run, environment, history, found }) {
  const [series] = Object.values(history.environments);
  const histograms = Object.fromEntries(VALUES.map((value) => [value, [null, { data: found[value], error: null }]]));
  const charts = { run, environment, history, histograms };
  return html`<h2><${Environment} id=${environment.id} name=${environment.name} /></h2>
    ${
      series === undefined
        ? html`<p class="quiet">No data for this environment in this time.</p>`
        : html`<${SharesOverTime} environment=${environment} history=${history} own=${series} />
            <${RewardCharts} ...${charts} />
            <${FreshnessCharts} ...${charts} />
            <${SeriesNumbers} label=${`Environment ${shown(environment.name, 48)}`} times=${history.times_s}
              series=${series} />`
    }`;
}

function SharesOverTime({ environment, history, own: series }) {
  const { token } = lineOf(environment.id);
  const line = (label, values, more = {}) => ({ label, values, token, ...more });
  const charts = [
    [
      "Share",
      "of sequences handed out",
      [line("got", series.share_got), line("promised", series.share_promised, { token: "edge", dash: 1 })],
    ],
    ["Owed", "sequences", [line("owed", series.owed_sequences)]],
    ["In", each(history, "tokens"), [line("in", series.tokens_in)]],
    ["Out", each(history, "tokens"), [line("out", series.tokens_out)]],
  ];
  return html`<div class="grid charts">
    ${charts.map(
      ([title, unit, lines]) => html`<${Panel} key=${title} title=${title} unit=${unit}>
        <${Lines} title=${`${title}, ${unit}`} times=${history.times_s} step=${history.step_s} series=${lines} />
      <//>`,
    )}
  </div>`;
}
