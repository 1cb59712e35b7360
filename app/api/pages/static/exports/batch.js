// A batch as a file: what it has of each environment, its deliveries and ranks, and its groups with their contents.
import { ask, Refused } from "../lib/api.js";
import { readContents } from "../lib/contents.js";
import { html } from "../lib/html.js";
import { OfflineFile } from "../lib/offline.js";
import { counted, measured, number, shown } from "../lib/text.js";
import { BatchFacts, BatchGroups, BatchParts, RankLoads } from "../parts/batch.js";
import { contentPath, isWhole, order, partPath } from "../parts/contents.js";
import { GroupHistory } from "../parts/group_history.js";
import { Environment } from "../parts/names.js";
import { Numbers } from "../parts/numbers.js";
import { addSequences, HINT } from "./group.js";

const GROUPS = 128; // with their contents
const LIMITS = { sequences: 16, tokens: 1000, text: 10_000 };

export async function batchFile(signal, { run, batch }) {
  const file = new OfflineFile(`Batch ${batch.batch} of run ${run}`, signal);
  await file.add(html`<${BatchFacts} batch=${batch} />
    <h2>Sequences by environment</h2>
    <${BatchParts} batch=${batch} />`);
  if (batch.ranks !== null) await file.add(html`<${Ranks} ranks=${batch.ranks} />`);
  await file.add(html`<h2>Groups of the batch <span class="unit">in training order</span></h2>
    <${BatchGroups} run=${run} groups=${batch.contents} />`);
  if (batch.contents !== null) await addGroups(file, run, batch.contents);
  return { file: await file.finish(), name: `batch-${batch.batch}.html` };
}

function Ranks({ ranks }) {
  const rows = ranks.loads.map((load, rank) => [
    number(rank),
    measured(load),
    ranks.taken_by.includes(rank) ? "yes" : "no",
    ranks.acknowledged_by.includes(rank) ? "yes" : "no",
  ]);
  return html`<h2>Ranks <span class="unit">load of each of ${counted(ranks.loads.length, "rank")}</span></h2>
    <${RankLoads} ranks=${ranks} />
    <${Numbers} label="Ranks" columns=${["Rank", "Load", "Got the shard", "Acknowledged it"]} rows=${rows} />`;
}

async function addGroups(file, run, groups) {
  const { tokenizer } = JSON.parse(await ask("version", file.signal));
  const of = counted(groups.length, "group");
  await file.add(html`<h2>Contents</h2><p class="quiet">${HINT}</p>`);
  for (const [at, listed] of groups.slice(0, GROUPS).entries()) {
    try {
      if (await addGroup(file, run, listed, tokenizer !== null)) continue;
      file.leaveOut(`contents of ${number(groups.length - at)} of ${of}`);
      return;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (error.code === "permission_denied") {
        file.leaveOut(`the contents of ${of}`, `the service says: ${shown(error.message, 300)}`);
        return;
      }
      // Such as a group whose contents the run has just given up.
      await file.add(html`<p class="notice"><strong>${shown(error.code)}</strong>: ${shown(error.message, 300)}</p>`);
    }
  }
  const left = groups.length - GROUPS;
  if (left > 0) file.leaveOut(`the contents of ${number(left)} of ${of}`, `a file has those of at most ${GROUPS}`);
}

/** Draw a group with its contents. Return whether the file had room. */
async function addGroup(file, run, listed, isText) {
  const path = contentPath(run, listed.id);
  const read = async (part) => readContents(await ask(partPath(path, part, isText), file.signal));
  const group = JSON.parse(await ask(path.slice(0, -"/content".length), file.signal));
  const whole = isWhole(group);
  const head = html`<h3>Group <code>${shown(group.id, 200)}</code></h3>
    ${listed.environment !== null && html`<${Environment} id=${listed.environment} name=${listed.name ?? ""} />`}
    <${GroupHistory} run=${run} group=${group} />
    ${
      listed.size > LIMITS.sequences &&
      html`<p class="notice">${number(LIMITS.sequences)} of ${counted(listed.size, "sequence")}.</p>`
    }`;
  if (!(await file.add(head))) return false;
  const content = whole ? await read({}) : null;
  const rows = whole ? order(content, true) : Array.from({ length: listed.size }, (_, at) => at);
  const drawn = await addSequences(file, { rows, content, read, chosen: null }, LIMITS);
  return drawn === Math.min(rows.length, LIMITS.sequences);
}
