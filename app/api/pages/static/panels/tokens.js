// Tokens: who may do what. Operators of all runs create, rotate and revoke them.
import { useFeed } from "../lib/feeds.js";
import { html } from "../lib/html.js";
import { duration, shown } from "../lib/text.js";
import { Action } from "../parts/action.js";
import { Select } from "../parts/fields.js";
import { State } from "../parts/names.js";
import { Command, Panel } from "../parts/panel.js";
import { Empty, Shown } from "../parts/states.js";

const PATH = "v1/tokens";
const ROLES = ["environment", "trainer", "viewer", "operator", "metrics"];
const DAY_S = 86400;
const KINDS = { active: "good", expired: "idle", revoked: "idle" };

export function TokensView() {
  const feed = useFeed(PATH, 5);
  return html`<${Panel} title="Tokens" level=${1} paths=${[PATH]} wide>
      <div class="actions"><${CreateAction} tokens=${feed.data?.tokens ?? []} /></div>
      <${Shown} feed=${feed} role="everywhere">${({ tokens }) => html`<${List} tokens=${tokens} />`}<//>
    <//>`;
}

function List({ tokens }) {
  if (tokens.length === 0) {
    return html`<${Empty} command="python -m app token create --role operator">
      There is no token yet. The first one closes the service: from then on every request needs credentials.
    <//>`;
  }
  return html`<div class="scroll" tabindex="0" role="region" aria-label="List of tokens">
    <table>
      <thead>
        <tr>
          <th scope="col">Name</th><th scope="col">Role</th><th scope="col">Runs</th><th scope="col">State</th>
          <th scope="col">Last used</th><th scope="col">Expires</th><th scope="col">Actions</th>
        </tr>
      </thead>
      <tbody>
        ${tokens.map((one) => html`<${Row} key=${one.id} token=${one} />`)}
      </tbody>
    </table>
  </div>`;
}

function Row({ token }) {
  const { id, role, environment, contents, state, last_used_age_s: used, expires_s: expires } = token;
  const more = [environment !== null && `for ${shown(environment, 64)}`, contents && "reads contents"].filter(Boolean);
  return html`<tr data-token=${id}>
    <td><bdi>${shown(token.name, 64)}</bdi> <code class="quiet">${id}</code></td>
    <td>${role}${more.length > 0 && ` (${more.join(", ")})`}</td>
    <td>${token.runs.length === 0 ? "*" : shown(token.runs.join(", "), 160)}</td>
    <td><${State} kind=${KINDS[state]} word=${state} /></td>
    <td>${used === null ? "never" : `${duration(used)} ago`}</td>
    <td>${state === "active" && (expires === null ? "never" : `in ${duration(expires)}`)}</td>
    <td>${state === "active" && html`<${EndActions} token=${token} />`}</td>
  </tr>`;
}

const title = (token) => shown(token.name || token.id, 64);

function EndActions({ token }) {
  return html`<span class="actions">
    <${Action}
      needs="tokens"
      label="Rotate"
      name=${`Rotate token ${title(token)}`}
      title=${`Rotate token ${title(token)}`}
      request=${(values) => ({
        method: "POST",
        path: `${PATH}/${token.id}/rotate`,
        body: { overlap_s: Number(values.overlap_s ?? 3600) },
      })}
      fields=${html`<label>
        Present secret stays valid for, s
        <input type="number" name="overlap_s" min="0" max="2592000" defaultValue="3600" required />
      </label>`}
      done=${(made) => html`<${Secret} made=${made} />`}
    >
      <p>The token gets a new secret, which is shown once. The present secret ends after this time.</p>
    <//>
    <${Action}
      needs="tokens"
      label="Revoke"
      name=${`Revoke token ${title(token)}`}
      title=${`Revoke token ${title(token)}`}
      request=${{ method: "DELETE", path: `${PATH}/${token.id}` }}
      done="The token is revoked."
    >
      <p>All processes refuse the token within 5 s, and its requests that wait end. It cannot be taken back.</p>
    <//>
  </span>`;
}

function asked({ name, role, runs, environment, contents, expires_days: days }) {
  const patterns = (runs ?? "").split(/[\s,]+/).filter(Boolean);
  const body = { role: role ?? "viewer", runs: patterns };
  if (name) body.name = name;
  if (environment) body.environment = environment;
  if (contents) body.contents = true;
  if (days) body.expires_s = Number(days) * DAY_S;
  return { method: "POST", path: PATH, body };
}

function CreateAction({ tokens }) {
  const hasOperator = tokens.some((one) => one.role === "operator" && one.state === "active");
  return html`<${Action}
    needs="tokens"
    label="Create token"
    title="Create a token"
    request=${asked}
    fields=${[
      html`<label key="name">Name, for people <input name="name" maxlength="128" autocomplete="off" /></label>`,
      html`<${Select} key="role" title="Role" name="role" options=${ROLES}
        value=${hasOperator ? "viewer" : "operator"} />`,
      html`<label key="runs">Runs, such as math-* <input name="runs" defaultValue="*" autocomplete="off" /></label>`,
      html`<label key="days">
        Expires after, days <input type="number" name="expires_days" min="0.01" step="any" defaultValue="90" />
      </label>`,
      html`<label key="environment">
        Only environment (role environment) <input name="environment" maxlength="128" autocomplete="off" />
      </label>`,
      html`<label key="contents" class="check">
        <input type="checkbox" name="contents" /> May read contents (role viewer)
      </label>`,
    ]}
    done=${(made) => html`<${Secret} made=${made} />`}
  >
    <p>
      The secret is shown once. The first token of a service closes it: from then on every request needs credentials.
      Without days it never expires.
    </p>
    ${
      !hasOperator &&
      html`<p class="notice">
        There is no operator's token yet. Make it first: with another role, nobody can sign in here to make more.
      </p>`
    }
  <//>`;
}

function Secret({ made }) {
  return html`<p>
      <strong>The service shows this secret once.</strong> Copy it now, and hand it on in a safe way.
    </p>
    <${Command} name="token" text=${made.token} />`;
}
