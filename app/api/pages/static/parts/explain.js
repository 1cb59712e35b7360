// Why there is no batch, or that there is one, in all that the API says of it.
import { useFeed } from "../lib/feeds.js";
import { html } from "../lib/html.js";
import { counted, duration, ended, known, measured, number, shown } from "../lib/text.js";
import { Figures } from "./figures.js";
import { Environment, Sentence } from "./names.js";
import { Panel } from "./panel.js";
import { explainPath, namesOf } from "./run.js";
import { Shown } from "./states.js";

const MOST = 50; // environments in the table

export function Explain({ run, status }) {
  const path = explainPath(run);
  const feed = useFeed(path);
  return html`<${Panel} title="Explanation" unit="of the next batch" paths=${[path]} wide>
    <${Shown} feed=${feed}>${(found) => html`<${Found} found=${found} status=${status} />`}<//>
  <//>`;
}

function Found({ found, status }) {
  const names = namesOf(status);
  // Without groups in the last minute, the API counts all.
  const isAll = found.arrived_groups === status.groups.accepted;
  const { missing_by_environment: missing, environments } = found;
  const lacks = (one) => missing[one.environment] ?? 0;
  const first = environments.toSorted((one, other) => lacks(other) - lacks(one)).slice(0, MOST);
  return html`<p>
      <${Sentence} text=${found.ready ? "A trainer that asks now gets a batch." : ended(found.detail)} names=${names} />
    </p>
    <${Figures}
      rows=${[
        ["Expected", known(found.expected_s, (seconds) => `in ${duration(seconds)}`)],
        ["May form without some minimum", known(found.relaxes_s, (seconds) => `in ${duration(seconds)}`)],
        ["Still to arrive at least", counted(found.missing_sequences, "sequence")],
        [isAll ? "Arrived since the run began" : "Arrived in the last minute", counted(found.arrived_groups, "group")],
        ...Object.entries(found.filtered_groups).map(([filter, count]) => [
          `Dropped of these by ${shown(filter, 40)}`,
          counted(count, "group"),
        ]),
        ["Dropped as too old", counted(found.stale_groups, "group")],
        ["In leased batches", counted(found.leased_groups, "group")],
      ]}
    />
    ${
      found.unblocked_by.length > 0 &&
      html`<p>Each of these groups would complete a batch: ${found.unblocked_by.map(groupOf(names)).join("; ")}.</p>`
    }
    ${first.length > 0 && html`<${Submissions} environments=${first} lacks=${lacks} />`}
    ${
      environments.length > MOST &&
      html`<p class="quiet">
        ${number(MOST)} of ${counted(environments.length, "environment")}: those that lack most come first.
      </p>`
    }`;
}

const groupOf =
  (names) =>
  ([environment, size]) => {
    const whose = environment === null ? "no environment" : shown(names.get(environment) ?? environment, 48);
    return `${counted(size, "sequence")} of ${whose}`;
  };

function Submissions({ environments, lacks }) {
  return html`<table class="submissions">
    <thead>
      <tr>
        <th scope="col">Environment</th>
        <th scope="col" class="number">Lacks</th>
        <th scope="col" class="number">Sequences/s</th>
        <th scope="col" class="number">Last group</th>
        <th scope="col" class="number">Heard</th>
      </tr>
    </thead>
    <tbody>
      ${environments.map(
        (one) => html`<tr key=${one.environment}>
          <td><${Environment} id=${one.environment} name=${one.name} /></td>
          <td class="number">${number(lacks(one))}</td>
          <td class="number">${known(one.sequences_per_s, measured)}</td>
          <td class="number">${known(one.last_group_age_s, (age) => `${duration(age)} ago`)}</td>
          <td class="number">${duration(one.last_seen_age_s)} ago</td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}
