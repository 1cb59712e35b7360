// Items of a curriculum by mean reward, over time.
import { html } from "../lib/html.js";
import { measured } from "../lib/text.js";
import { Lines } from "./chart.js";
import { Heat } from "./heat.js";

export const UNSEEN = "not seen";

/** Labels of the tenths of the range of rewards, the lowest first. The ends have all items beyond them, too. */
export function tenths({ reward_edges: edges, items_by_reward: counts }) {
  return counts.map((_, at) => {
    const [low, high] = [measured(edges[at]), measured(edges[at + 1])];
    if (at === 0) return `below ${high}`;
    return at === counts.length - 1 ? `${low} and above` : `${low} to ${high}`;
  });
}

/** `series` are those of the curriculum in the history; undefined if it has none. */
export function ItemsOverTime({ history, series, curriculum }) {
  if (series === undefined) {
    return html`<p class="quiet">
      No data for this time. The history has the first 8 curricula of a run by name, and only while workers are alive.
    </p>`;
  }
  const rows = tenths(curriculum).map((label, at) => ({ label, values: series.items_by_reward[at] }));
  rows.reverse();
  const unseen = { label: UNSEEN, values: series.unseen, token: "accent" };
  return html`<${Heat} title="Items by mean reward over time" times=${history.times_s} step=${history.step_s}
      rows=${rows} noun="items" />
    <${Lines} title="Items not seen over time" times=${history.times_s} step=${history.step_s} series=${[unseen]} />`;
}
