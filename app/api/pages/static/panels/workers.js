// Workers: the members of each environment, what they run, when they were heard, and how often they tried again.
import { useFeed } from "../lib/feeds.js";
import { html } from "../lib/html.js";
import { choose, useRoute } from "../lib/route.js";
import { counted, duration, known, number, shown } from "../lib/text.js";
import { EnvironmentRows, presence } from "../parts/environments.js";
import { Environment, State } from "../parts/names.js";
import { DisconnectAction } from "../parts/operate.js";
import { Panel } from "../parts/panel.js";
import { Headline, statusPath, useStatus } from "../parts/run.js";
import { NoEnvironment, Shown } from "../parts/states.js";

export function WorkersView({ run }) {
  const feed = useStatus(run);
  return html`<${Shown} feed=${feed}>
    ${(status) => html`<${Headline} status=${status} hasAll />
      <${Environments} run=${run} status=${status} />`}
  <//>`;
}

function Environments({ run, status }) {
  const { query } = useRoute();
  const chosen = query.get("environment") || null;
  const { environments } = status;
  const listed = environments.find((one) => String(one.id) === chosen);
  return html`${
      listed
        ? html`<${Members} run=${run} environment=${listed} />`
        : chosen !== null && html`<${Unlisted} run=${run} id=${chosen} />`
    }
    <${Panel} title="Environments" paths=${[statusPath(run)]} wide>
      ${environments.length === 0 && html`<${NoEnvironment} run=${run} />`}
      <${List} run=${run} status=${status} chosen=${chosen} />
    <//>`;
}

// The status has the first environments. The address may have another one, or one that does not exist.
function Unlisted({ run, id }) {
  const feed = useFeed(`v1/runs/${run}/environments/${encodeURIComponent(id)}`);
  return html`<${Shown} feed=${feed}>${(found) => html`<${Members} run=${run} environment=${found} />`}<//>`;
}

function List({ run, status, chosen }) {
  return html`<${EnvironmentRows}
    run=${run}
    status=${status}
    label="Environments"
    height=${40}
    least=${900}
    draw=${(one) => html`<button
      type="button"
      class="worker"
      data-environment=${one.id}
      aria-expanded=${String(one.id) === chosen}
      onClick=${() => choose({ environment: String(one.id) === chosen ? null : one.id })}
    >
      <${Environment} id=${one.id} name=${one.name} />
      <${State} ...${presence(one)} />
      <span>${counted(one.members, "member")}</span>
      <span>${counted(one.running_groups, "group")} running</span>
      <span class="quiet">heard ${duration(one.last_seen_age_s)} ago</span>
    </button>`}
  />`;
}

function Members({ run, environment }) {
  const path = `v1/runs/${run}/environments/${environment.id}/members`;
  const feed = useFeed(path);
  return html`<${Panel} title="Members" wide paths=${[path]}>
    <p class="actions">
      <${Environment} id=${environment.id} name=${environment.name} />
      ${environment.connected && html`<${DisconnectAction} run=${run} environment=${environment} />`}
    </p>
    <${Shown} feed=${feed}>
      ${({ members, next_after: more }) =>
        members.length === 0
          ? html`<p class="quiet">No worker process is a member now. One that starts joins by itself.</p>`
          : html`<div class="scroll" tabindex="0" role="region" aria-label="Worker processes">
                <table>
                  <thead>
                    <tr>
                      <th scope="col">Member</th>
                      <th scope="col" class="number">Running groups</th>
                      <th scope="col" class="number">Permits</th>
                      <th scope="col" class="number">Retries</th>
                      <th scope="col">Heard</th>
                      <th scope="col">Joined</th>
                    </tr>
                  </thead>
                  <tbody>
                    ${members.map(
                      (one) => html`<tr key=${one.member}>
                        <td><code>${shown(one.member, 64)}</code></td>
                        <td class="number">${number(one.running_groups)}</td>
                        <td class="number">${number(one.permits)}</td>
                        <td class="number">${known(one.retries, number)}</td>
                        <td>${duration(one.last_seen_age_s)} ago</td>
                        <td>${duration(one.joined_age_s)} ago</td>
                      </tr>`,
                    )}
                  </tbody>
                </table>
              </div>
              ${more !== null && html`<p class="quiet">The first ${number(members.length)}, by name.</p>`}`}
    <//>
  <//>`;
}
