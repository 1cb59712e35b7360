// Groups: find them by what they are and where they are, and open one.
import { ONCE, useFeed } from "../lib/feeds.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { address, useRoute } from "../lib/route.js";
import { compact, duration, known, measured, number, shown } from "../lib/text.js";
import { moment } from "../lib/time.js";
import { DeleteGroups } from "../parts/delete_groups.js";
import { Pages } from "../parts/fields.js";
import { Chips, clearFilters, Filters, useFilters } from "../parts/filters.js";
import { Environment } from "../parts/names.js";
import { curl, Panel } from "../parts/panel.js";
import { Headline, useStatus } from "../parts/run.js";
import { Rows } from "../parts/rows.js";
import { Empty, Shown } from "../parts/states.js";
import { GroupView } from "./group.js";

const PAGE = 100;
const TITLES = [
  ["Group"],
  ["State"],
  ["Environment"],
  ["Sequences", "number"],
  ["Tokens", "number"],
  ["Mean score", "number score"],
  ["Staleness", "number"],
  ["Item", "item"],
  ["Received", "number"],
];

export function GroupsView({ run }) {
  const status = useStatus(run);
  return html`<${Shown} feed=${status}>
    ${(data) =>
      html`<${Headline} status=${data} />
        <${Groups} run=${run} status=${data} />`}
  <//>`;
}

// The list stays as it is while one of its groups is open. It is not asked for before the reader sees it.
function Groups({ run, status }) {
  const { query } = useRoute();
  const opened = query.get("group") || null;
  const isListed = useRef(false);
  isListed.current ||= opened === null;
  const asked = new URLSearchParams({ limit: PAGE });
  const filters = useFilters();
  for (const [name, value] of Object.entries(filters)) asked.set(name, value);
  if (query.get("cursor")) asked.set("cursor", query.get("cursor"));
  const path = isListed.current ? `v1/runs/${run}/groups?${asked}` : null;
  const feed = useFeed(path, ONCE);
  const [read, noteRead] = useRead(path, status.groups.accepted);
  if (opened !== null) return html`<${GroupView} run=${run} id=${opened} />`;
  const isFirst = Object.keys(filters).length === 0 && !query.get("cursor");
  const again = () => {
    noteRead();
    feed.retry();
  };
  return html`<${Panel} title="Groups" paths=${[path]} wide>
    <${Filters} filters=${filters} environments=${status.environments} />
    <${Chips} filters=${filters} environments=${status.environments} />
    <div class="actions"><${DeleteGroups} run=${run} status=${status} filters=${filters} /></div>
    <${WhenRead} at=${read.at} more=${isFirst ? status.groups.accepted - read.accepted : 0} again=${again} />
    ${
      feed.error?.code === "environment_not_found"
        ? html`<${NoMatch}>The run has no environment named ${shown(filters.environment, 64)}. Choose another one.<//>`
        : html`<${Shown} feed=${feed}>
            ${(data) => html`<${Found} run=${run} data=${data} query=${query} filters=${filters} />`}
          <//>`
    }
  <//>`;
}

// When the list was read, and how many groups had come until then. The second value notes that it is read again.
function useRead(path, accepted) {
  const [read, setRead] = useState({ accepted, at: Date.now() });
  const note = () => setRead({ accepted, at: Date.now() });
  useEffect(note, [path]);
  return [read, note];
}

// The list stays as it is while it is read. This says of when it is, and without filters what came in the meantime.
function WhenRead({ at, more, again }) {
  return html`<p class="quiet reading" role="status">
    Read at <time>${moment.format(at)}</time>. States and ages are of that moment.${" "}
    <button type="button" class="small" onClick=${again}>
      ${more > 0 ? `${number(more)} new: show them` : "Read again"}
    </button>
  </p>`;
}

function Found({ run, data, query, filters }) {
  const more = data.cursor !== null;
  const open = ({ id }) => address("groups", run, { ...Object.fromEntries(query), group: id });
  return html`
    ${
      data.groups.length === 0 &&
      html`<${NoGroup} run=${run} more=${more} isFiltered=${Object.keys(filters).length > 0} />`
    }
    <${Rows}
      label="Groups"
      kind="group"
      titles=${TITLES}
      items=${data.groups}
      id=${(group) => group.id}
      height=${32}
      draw=${(group) => html`<${Row} group=${group} href=${open(group)} />`}
    />
    <${Pages} query=${query} cursor=${data.cursor}>
      ${data.looked_at > 0 && `${number(data.looked_at)} groups looked at.`}
    <//>`;
}

function NoMatch({ children }) {
  return html`<${Empty}>${children}<//>
    <p><button type="button" onClick=${clearFilters}>Clear the filters</button></p>`;
}

function NoGroup({ run, more, isFiltered }) {
  if (more) return html`<${Empty}>None on this page. There may be some on the next one.<//>`;
  if (isFiltered) {
    return html`<${NoMatch}>
      The run knows no such group. It forgets groups some time after they ended, and their scores at once.
    <//>`;
  }
  const group = '{"tokens": [[1, 2]], "masks": [[-100, 2]], "scores": [1.0]}';
  return html`<${Empty} command=${curl(`v1/runs/${run}/groups`, `{"groups": [${group}]}`)}>
    The run knows no group. Environments submit them, as the SDK does, or:
  <//>`;
}

function Row({ group, href }) {
  const { environment, environment_name: name } = group;
  return html`<div class="entry group" data-group=${group.id}>
    <span role="cell"
      ><a data-page href=${href}><code>${shown(group.id, 36)}</code></a></span
    >
    <span role="cell">${group.state}${group.reason === null ? "" : `: ${shown(group.reason, 40)}`}</span>
    ${
      environment === null
        ? html`<span role="cell">–</span>`
        : html`<${Environment} role="cell" id=${environment} name=${name ?? environment} />`
    }
    <span role="cell" class="number">${number(group.size)}</span>
    <span role="cell" class="number">${known(group.tokens, compact)}</span>
    <span role="cell" class="number score">${known(group.mean_score, measured)}</span>
    <span role="cell" class="number">${known(group.staleness, number)}</span>
    <span role="cell" class="item">${known(group.item, (item) => shown(item, 60))}</span>
    <span role="cell" class="number">${duration(group.received_age_s)} ago</span>
  </div>`;
}
