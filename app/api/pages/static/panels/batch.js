// One batch: where it is, what it has of each environment, the loads of its ranks, and its groups.
import { batchFile } from "../exports/batch.js";
import { useFeed } from "../lib/feeds.js";
import { html } from "../lib/html.js";
import { useKeys } from "../lib/keys.js";
import { choose } from "../lib/route.js";
import { counted, shown } from "../lib/text.js";
import { BatchFacts, BatchGroups, BatchParts, RankLoads } from "../parts/batch.js";
import { Export } from "../parts/export.js";
import { Panel } from "../parts/panel.js";
import { Shown } from "../parts/states.js";

export function BatchView({ run, id }) {
  const path = `v1/runs/${run}/batches/${encodeURIComponent(id)}`;
  const feed = useFeed(path);
  const close = () => choose({ batch: null });
  useKeys({ Escape: ["back to the list", close] });
  return html`<${Panel} title="Batch" paths=${[path]} wide>
      <p class="filter">
        <button type="button" onClick=${close}>All batches</button>
        <code>${shown(id, 64)}</code>
        ${feed.data !== null && html`<${Export} write=${(signal) => batchFile(signal, { run, batch: feed.data })} />`}
      </p>
      <${Shown} feed=${feed}>
        ${(batch) => html`<div class="pair">
          <${BatchFacts} batch=${batch} />
          <div>
            <h3>Sequences by environment</h3>
            <${BatchParts} batch=${batch} />
          </div>
        </div>`}
      <//>
    <//>
    ${
      feed.data !== null &&
      html`${feed.data.ranks !== null && html`<${Ranks} path=${path} ranks=${feed.data.ranks} />`}
        <${Panel} title="Groups of the batch" unit="in training order" paths=${[path]} wide>
          <${BatchGroups} run=${run} groups=${feed.data.contents} />
        <//>`
    }`;
}

function Ranks({ path, ranks }) {
  const unit = `load of each of ${counted(ranks.loads.length, "rank")}`;
  return html`<${Panel} title="Ranks" unit=${unit} paths=${[path]} wide><${RankLoads} ranks=${ranks} /><//>`;
}
