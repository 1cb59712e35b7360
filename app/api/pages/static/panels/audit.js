// Audit: who changed or removed what, newest first.
import { useFeed } from "../lib/feeds.js";
import { html } from "../lib/html.js";
import { choose, useRoute } from "../lib/route.js";
import { number, shown } from "../lib/text.js";
import { moment, zone } from "../lib/time.js";
import { Pages } from "../parts/fields.js";
import { Panel } from "../parts/panel.js";
import { Empty, Shown } from "../parts/states.js";

const PAGE = 100;
const [BRIEF, WHOLE] = [160, 8000]; // characters of a change

export function AuditView() {
  const { query } = useRoute();
  const chosen = { run: query.get("run") ?? "", before: query.get("before") ?? "" };
  const asked = new URLSearchParams(Object.entries({ limit: PAGE, ...chosen }).filter(([, value]) => value !== ""));
  const path = `v1/audit?${asked}`;
  const feed = useFeed(path, chosen.before ? 60 : 5);
  const show = (event) => {
    event.preventDefault();
    choose({ run: new FormData(event.target).get("run"), before: null });
  };
  return html`<${Panel} title="Audit trail" level=${1} paths=${[path]} wide>
      <form class="filter" onSubmit=${show}>
        <label
          >Run <input key=${chosen.run} type="search" name="run" defaultValue=${chosen.run} pattern="[A-Za-z0-9._\\-]*"
        /></label>
        <button type="submit">Show</button>
      </form>
      <${Shown} feed=${feed} role="operator">${(data) => html`<${Trail} data=${data} query=${query} />`}<//>
    <//>`;
}

// Who sent a request: a name, or how the sender was identified.
const sender = ({ identity, kind }) => identity ?? (kind === "open" ? "no token" : (kind ?? "command line"));

// What changed, as the trail has it: the event, and its fields without the run.
function words({ event, run: _, ...fields }) {
  return Object.keys(fields).length === 0 ? event : `${event}: ${JSON.stringify(fields.changes ?? fields)}`;
}

// How often the request came. What it changed follows, if it changed anything.
const repeated = ({ count, changes }) => `${number(count)} times${changes.length > 0 ? ", most recently:" : ""}`;

// A long change is unfolded by the reader.
function Change({ text }) {
  if (text.length <= BRIEF) return html`<div class="quiet">${shown(text, BRIEF)}</div>`;
  return html`<details class="quiet">
    <summary>${shown(text, BRIEF)}</summary>
    ${shown(text, WHOLE)}
  </details>`;
}

function Trail({ data, query }) {
  if (data.entries.length === 0) {
    return html`<${Empty}>
        The trail has no entries here. It gets one when a run, its settings or a token is changed or removed.
      <//>
      <${Pages} query=${query} cursor=${data.next_before} name="before" first="Newest" next="Older" />`;
  }
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Entries">
      <table class="audit">
        <thead>
          <tr>
            <th scope="col">Time (${zone})</th><th scope="col">Who</th><th scope="col">Run</th>
            <th scope="col">Request</th><th scope="col">Answer</th>
          </tr>
        </thead>
        <tbody>
          ${data.entries.map(
            (one) => html`<tr key=${one.id}>
              <td class="number">${moment.format(one.at_s * 1000)}</td>
              <td class="named">
                <bdi>${shown(sender(one), 64)}</bdi>${one.role && ` (${one.role})`}
              </td>
              <td class="named">${one.run === null ? "" : shown(one.run, 64)}</td>
              <td class="request">
                <code>${shown(`${one.method} ${one.path}`, 160)}</code>
                ${one.count > 1 && html` <span class="quiet">${repeated(one)}</span>`}
                ${one.changes.map((change, at) => html`<${Change} key=${at} text=${words(change)} />`)}
              </td>
              <td>${one.status}${one.code ? ` ${shown(one.code)}` : ""}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <${Pages} query=${query} cursor=${data.next_before} name="before" first="Newest" next="Older" />`;
}
