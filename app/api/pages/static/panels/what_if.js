// What-if: the distribution that other settings of a curriculum would give. Nothing changes and nothing is handed out.
import { EVERY_S, useFeed } from "../lib/feeds.js";
import { html, useState } from "../lib/html.js";
import { choose, useRoute } from "../lib/route.js";
import { own } from "../lib/series.js";
import { measured, number, percent, shown } from "../lib/text.js";
import { Bins } from "../parts/bins.js";
import { Select, Typed } from "../parts/fields.js";
import { Panel } from "../parts/panel.js";
import { Shown } from "../parts/states.js";

const ITEMS = 16;

// Sliders: title, ends, and whether equal ways are equal factors. Without ends they are those of the rewards.
const SLIDERS = {
  temperature: ["Temperature", 0.01, 100, true],
  initial_competence: ["Share at the beginning", 0, 1],
  competence_threshold: ["Mean reward of a mastered item"],
  frontier_width: ["Width of the frontier, bins", 0.1, 10, true],
  target_pass_rate: ["Target pass rate", 0, 1],
  score_temperature: ["Score temperature", 0.01, 10, true],
  staleness_share: ["Share drawn by staleness", 0, 1],
  unseen_share: ["Share of unseen items", 0, 1],
  hard_threshold: ["Hard up to"],
  easy_threshold: ["Easy from"],
  hard_weight: ["Weight of hard", 0, 1],
  normal_weight: ["Weight of normal", 0, 1],
  easy_weight: ["Weight of easy", 0, 1],
};
// The settings that each strategy uses, besides its temperature.
const USED = {
  uniform: [],
  easy_first: [],
  competence_based: ["initial_competence", "competence_threshold", "frontier_width"],
  learnability: [],
  thompson: ["target_pass_rate"],
  plr: ["score_temperature", "staleness_share", "unseen_share"],
  difficulty_pools: ["hard_threshold", "easy_threshold", "hard_weight", "normal_weight", "easy_weight"],
  bandit: [],
};
const CHOICES = { competence_based: ["form", ["cdf", "frontier"]], bandit: ["arms", ["bins", "categories"]] };
const TITLES = { form: "Form", arms: "Arms" };
const BY_STEP = ["easy_first", "competence_based"];
const ALL = ["strategy", "step", "total_steps", "form", "arms", ...Object.keys(SLIDERS)];

export function WhatIf({ path, curriculum }) {
  const { query } = useRoute();
  const { settings } = curriculum;
  const strategy = own(USED, query.get("strategy")) ? query.get("strategy") : settings.strategy;
  const [choice, options] = CHOICES[strategy] ?? [];
  const sliders = strategy === "uniform" ? [] : ["temperature", ...USED[strategy]];
  const asked = { strategy, n: ITEMS };
  for (const name of [...sliders, ...(BY_STEP.includes(strategy) ? ["step", "total_steps"] : [])]) {
    if (query.get(name)) asked[name] = Number(query.get(name));
  }
  if (options?.includes(query.get(choice))) asked[choice] = query.get(choice);
  const body = JSON.stringify(asked);
  const set = ({ target }) => choose({ [target.name]: target.value });
  const feed = useFeed(`${path}/what-if`, EVERY_S, { body });
  const paths = [[`${path}/what-if`, body]];
  return html`<${Panel} title="What if" unit="a preview: no setting changes" paths=${paths} wide>
    <div class="filter">
      <${Select} name="strategy" title="Strategy" options=${Object.keys(USED)} value=${strategy} onChange=${set} />
      ${
        choice &&
        html`<${Select} name=${choice} title=${TITLES[choice]} options=${options}
          value=${asked[choice] ?? settings[choice]} onChange=${set} />`
      }
      ${
        BY_STEP.includes(strategy) &&
        html`<${Count} name="step" title="Step" value=${asked.step ?? ""} hint="the run's" />
          <${Count} name="total_steps" title="Total steps" value=${asked.total_steps ?? settings.total_steps ?? ""} />`
      }
      <button type="button" onClick=${() => choose(Object.fromEntries(ALL.map((name) => [name, null])))}>
        Present settings
      </button>
    </div>
    <div class="options">
      ${sliders.map(
        (name) => html`<${Slider} key=${`${name} ${asked[name] ?? settings[name]}`} name=${name}
          value=${asked[name] ?? settings[name]} settings=${settings} />`,
      )}
    </div>
    <${Shown} feed=${feed}>${(data) => html`<${Outcome} data=${data} />`}<//>
  <//>`;
}

function Count({ name, title, value, hint = "" }) {
  return html`<label
    >${title} <${Typed} type="number" min="0" step="1" name=${name} value=${value} placeholder=${hint}
      onChange=${(event) => choose({ [name]: event.target.value })}
  /></label>`;
}

// The value follows the slider at once. It is asked for when the slider rests.
function Slider({ name, value, settings }) {
  const [title, low = settings.reward_min, high = settings.reward_max, grows = false] = SLIDERS[name];
  const [now, setNow] = useState(value);
  const place = (one) => (grows ? Math.log(one / low) / Math.log(high / low) : (one - low) / (high - low));
  const at = (share) => Number((grows ? low * (high / low) ** share : low + (high - low) * share).toPrecision(3));
  const read = (event) => at(Number(event.target.value) / 1000);
  return html`<label
    ><span>${title} <b>${measured(now)}</b></span>
    <input
      type="range"
      name=${name}
      min="0"
      max="1000"
      value=${Math.round(1000 * Math.min(1, Math.max(0, place(now))))}
      aria-valuetext=${measured(now)}
      onInput=${(event) => setNow(read(event))}
      onChange=${(event) => choose({ [name]: read(event) })}
  /></label>`;
}

function Outcome({ data }) {
  const { current, alternative, difference } = data;
  const most = Math.max(...current.bins, ...alternative.bins);
  const rows = alternative.bins.map((value, bin) => ({
    label: bin === 0 ? "bin 0, easiest" : `bin ${bin}`,
    value,
    reference: current.bins[bin],
    text: percent(value),
  }));
  const isSame = alternative.strategy === current.strategy;
  return html`<p>
      <strong>${alternative.strategy}</strong>
      ${isSame ? " with these settings instead of the present ones" : ` instead of ${current.strategy}`} would move
      ${" "}${percent(difference)} of the draws to other bins. Entropy over bins:
      ${" "}${percent(alternative.entropy)} of the maximum, with the present settings ${percent(current.entropy)}.
    </p>
    <div class="pair">
      <div>
        <h3>Probability of each bin in the next draw</h3>
        <${Bins} rows=${rows} most=${most} />
        <p class="quiet">Bar: with these settings. Tick: with the present ones.</p>
      </div>
      <div>
        <h3>Items it would hand out first</h3>
        ${alternative.items.length === 0 && html`<p class="quiet">None.</p>`}
        <ol class="drawn">
          ${alternative.items.slice(0, 8).map(
            (item) => html`<li key=${item.key}>
              <code>${shown(item.key, 48)}</code>${" "}
              <span class="quiet">bin ${number(item.bin)}, ${shown(item.why, 80)}</span>
            </li>`,
          )}
        </ol>
      </div>
    </div>`;
}
