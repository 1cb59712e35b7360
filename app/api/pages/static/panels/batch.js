// One batch: where it is, what it has of each environment, the loads of its ranks, and its groups.
import { batchFile } from "../exports/batch.js";
import { EVERY_S, useFeed } from "../lib/feeds.js";
import { html } from "../lib/html.js";
import { useKeys } from "../lib/keys.js";
import { close } from "../lib/route.js";
import { counted, shown } from "../lib/text.js";
import { BatchFacts, BatchGroups, BatchParts, isGone, RankLoads } from "../parts/batch.js";
import { Export } from "../parts/export.js";
import { Panel } from "../parts/panel.js";
import { Empty, Shown } from "../parts/states.js";

export function BatchView({ run, id }) {
  const path = `v1/runs/${run}/batches/${encodeURIComponent(id)}`;
  const feed = useFeed(path, EVERY_S, { isFinal: isGone });
  const back = () => close({ batch: null });
  useKeys({ Escape: ["back to the list", back] });
  return html`<${Panel} title="Batch" paths=${[path]} wide>
      <p class="filter">
        <button type="button" onClick=${back}>All batches</button>
        <code>${shown(id, 64)}</code>
        ${feed.data !== null && html`<${Export} write=${(signal) => batchFile(signal, { run, batch: feed.data })} />`}
      </p>
      ${
        feed.error !== null && isGone(feed.error)
          ? html`<${Empty}>
              This batch is no longer kept, or never was there. A run remembers its latest 128 batches, and those that
              trainers hold.
            <//>`
          : html`<${Facts} feed=${feed} />`
      }
    <//>
    ${
      feed.data !== null &&
      html`${feed.data.ranks !== null && html`<${Ranks} path=${path} ranks=${feed.data.ranks} />`}
        <${Panel} title="Groups of the batch" unit="in training order" paths=${[path]} wide>
          <${BatchGroups} run=${run} groups=${feed.data.contents} />
        <//>`
    }`;
}

function Facts({ feed }) {
  return html`<${Shown} feed=${feed}>
        ${(batch) => html`<div class="pair">
          <${BatchFacts} batch=${batch} />
          <div>
            <h3>Sequences by environment</h3>
            <${BatchParts} batch=${batch} />
          </div>
        </div>`}
      <//>`;
}

function Ranks({ path, ranks }) {
  const unit = `load of each of ${counted(ranks.loads.length, "rank")}`;
  return html`<${Panel} title="Ranks" unit=${unit} paths=${[path]} wide><${RankLoads} ranks=${ranks} /><//>`;
}
