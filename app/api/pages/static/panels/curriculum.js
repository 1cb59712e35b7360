// Curriculum: how well the items are solved, now and over time, each item, and what other settings would draw.
import { useFeed } from "../lib/feeds.js";
import { html, useRef } from "../lib/html.js";
import { choose, useRoute } from "../lib/route.js";
import { own } from "../lib/series.js";
import { counted, number, shown } from "../lib/text.js";
import { Bins } from "../parts/bins.js";
import { Instead, Select } from "../parts/fields.js";
import { History } from "../parts/history.js";
import { ItemsOverTime, tenths, UNSEEN } from "../parts/items_over_time.js";
import { curl, Panel } from "../parts/panel.js";
import { Headline, useStatus } from "../parts/run.js";
import { Empty, Shown } from "../parts/states.js";
import { TimeBar } from "../parts/time_bar.js";
import { Items } from "./items.js";
import { WhatIf } from "./what_if.js";

const MOST_A_SECOND = 8; // curricula to read: their items are counted each time

export function CurriculumView({ run }) {
  const status = useStatus(run);
  const path = `v1/runs/${run}/curricula`;
  const count = useRef(1);
  const feed = useFeed(path, Math.max(1, count.current / MOST_A_SECOND));
  count.current = feed.data?.curricula.length ?? 1;
  return html`<${Shown} feed=${status}>
    ${(data) =>
      html`<${Headline} status=${data} />
        <${Shown} feed=${feed}>
          ${({ curricula }) => html`<${Curricula} run=${run} status=${data} path=${path} curricula=${curricula} />`}
        <//>`}
  <//>`;
}

function Curricula({ run, status, path, curricula }) {
  const { query } = useRoute();
  if (curricula.length === 0) {
    const command = curl(`${path}/NAME`, '{"strategy": "learnability"}', "PUT");
    return html`<${Empty} command=${command}>This run has no curriculum. Set one up:<//>`;
  }
  const wanted = query.get("curriculum");
  const found = curricula.find((one) => one.name === wanted);
  const listed = found ?? curricula[0];
  return html`${wanted && !found && html`<${Instead} kind="curriculum" wanted=${wanted} name=${listed.name} />`}
    <${Curriculum} key=${listed.name} run=${run} status=${status} path=${path} curricula=${curricula}
    chosen=${listed} />`;
}

function Curriculum({ run, status, path, curricula, chosen }) {
  const its = `${path}/${encodeURIComponent(chosen.name)}`;
  return html`<div class="filter">
      <${Select} title="Curriculum" options=${curricula.map(({ name }) => [name, shown(name, 48)])}
        value=${chosen.name} onChange=${(event) => choose({ ...NOTHING, curriculum: event.target.value })} />
      <span>${summary(chosen)}</span>
    </div>
    <${Panel} title="Items by mean reward" unit="now" paths=${[its]} wide>
      <${Now} path=${its} curriculum=${chosen} />
    <//>
    <${OverTime} run=${run} status=${status} curriculum=${chosen} />
    <${WhatIf} path=${its} curriculum=${chosen} />
    <${Items} run=${run} path=${its} curriculum=${chosen} />`;
}

const NOTHING = { item: null, search: null, sort: null, descending: null, bin: null, cursor: null, strategy: null };

function summary({ settings, items, items_seen: seen, in_flight: flying, observations, samples }) {
  return (
    `${settings.strategy}: ${number(seen)} of ${counted(items, "item")} seen, ${number(flying)} in flight. ` +
    `${counted(observations, "observation")}, ${counted(samples, "sample")}.`
  );
}

function Now({ path, curriculum }) {
  const { items, items_by_reward: counts, items_unseen: unseen } = curriculum;
  if (items === 0) {
    const command = curl(`${path}/items`, '{"items": ["problem-1", "problem-2"]}');
    return html`<${Empty} command=${command}>The curriculum has no items yet. Add some:<//>`;
  }
  const rows = tenths(curriculum).map((label, at) => ({ label, value: counts[at], text: number(counts[at]) }));
  rows.reverse().push({ label: UNSEEN, value: unseen, text: number(unseen) });
  return html`<${Bins} rows=${rows} most=${Math.max(...counts, unseen)} />
    <p class="quiet">
      The easiest items are at the top. Unseen items count by their prior. Without one, they count as not seen.
    </p>`;
}

function OverTime({ run, status, curriculum }) {
  return html`<${TimeBar} />
    <${History} run=${run} fields=${["run.curricula"]}>
      ${(history, path) => html`<${Panel} title="Items by mean reward over time" unit="items" paths=${[path]} wide>
      <${ItemsOverTime} history=${history} series=${own(history.run.curricula, curriculum.name)}
        curriculum=${curriculum} />
    <//>`}
  <//>`;
}
