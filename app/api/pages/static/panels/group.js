// One group: its way through the run, and its sequences side by side.
import { groupFile } from "../exports/group.js";
import { ask } from "../lib/api.js";
import { rawContents, readContents } from "../lib/contents.js";
import { ONCE, useFeed } from "../lib/feeds.js";
import { html, useMemo } from "../lib/html.js";
import { useKeys } from "../lib/keys.js";
import { choose, close, useRoute } from "../lib/route.js";
import { counted, shown, shownLines } from "../lib/text.js";
import { Comparison, FOLDED } from "../parts/comparison.js";
import { contentPath, isWhole as comesWhole, order, partPath } from "../parts/contents.js";
import { Export } from "../parts/export.js";
import { Select, Typed } from "../parts/fields.js";
import { GroupHistory, useWay } from "../parts/group_history.js";
import { withCode } from "../parts/names.js";
import { overlaysOf, Ramp, rangeOf } from "../parts/overlays.js";
import { Panel } from "../parts/panel.js";
import { Sequence } from "../parts/sequence.js";
import { Empty, Shown } from "../parts/states.js";

const TOKENS = 400; // of each sequence, until the reader asks for more
const COMPARED = 20_000; // tokens of each of two sequences of a large group
const SIBLINGS = 16;
const RAW_CHARACTERS = 200_000;
// Of an opened group, in the address.
const CHOICES = ["group", "overlay", "sequence", "compare", "unfolded", "tokens", "view"];
const GONE = "group_gone"; // the code of an error
const CONTENTS = { read: readContents };

export function GroupView({ run, id }) {
  const path = `v1/runs/${run}/groups/${encodeURIComponent(id)}`;
  const contents = contentPath(run, id);
  const feed = useFeed(path);
  const back = () => close(Object.fromEntries(CHOICES.map((name) => [name, null])));
  useKeys({ Escape: ["back to the list", back] });
  return html`<${Panel} title="Group" paths=${[path, contents]} wide>
    <p class="filter">
      <button type="button" onClick=${back}>All groups</button>
      <code>${shown(id, 200)}</code>
    </p>
    <${Shown} feed=${feed}>
      ${(group) => html`<${Known} run=${run} path=${contents} group=${group} />`}
    <//>
  <//>`;
}

function Known({ run, path, group }) {
  const way = useWay(run, group);
  return html`<${GroupHistory} run=${run} group=${group} way=${way} />
    <${Contents} run=${run} path=${path} group=${group} way=${way} />`;
}

function Contents({ run, path, group, way }) {
  const service = useFeed("version", ONCE);
  return html`<${Shown} feed=${service}>
    ${({ tokenizer }) => html`<${Kept} run=${run} path=${path} group=${group} way=${way} tokenizer=${tokenizer} />`}
  <//>`;
}

function Kept({ run, path, group, way, tokenizer }) {
  const { query } = useRoute();
  const isText = tokenizer !== null && query.get("tokens") !== "ids";
  const isWhole = comesWhole(group);
  // Of a large group, the first token of the first sequence tells how long all sequences are.
  const asked = (part) => partPath(path, part, isText);
  const feed = useFeed(asked(isWhole ? {} : { sequence: 0, tokens: 1 }), ONCE, CONTENTS);
  const raw = query.get("view") === "raw";
  useKeys({ x: ["raw JSON", () => choose({ view: raw ? null : "raw" })] });
  if (feed.error?.code === GONE) return html`<${Gone} error=${feed.error} />`;
  return html`
    ${
      tokenizer !== null &&
      html`<p class="filter">
        <${Select} title="Tokens as" options=${[["", "text"], "ids"]} value=${isText ? "" : "ids"}
          onChange=${(event) => choose({ tokens: event.target.value })} />
        <span class="quiet">${isText && html`Text by <code>${shown(tokenizer)}</code>.`}</span>
      </p>`
    }
    <${Shown} feed=${feed} role="contents">
      ${(content) =>
        raw
          ? html`<pre tabindex="0" aria-label="Raw JSON">
${shownLines(rawContents(content), RAW_CHARACTERS)}</pre
            >`
          : html`<${Siblings} run=${run} group=${group} way=${way} asked=${asked} content=${content}
              isWhole=${isWhole} />`}
    <//>`;
}

// The way of the group says since when, and goes on. The message of the error says it of one moment.
function Gone({ error }) {
  return html`<${Empty}>The run does not keep the contents of this group. ${withCode(shown(error.remedy, 500))}<//>`;
}

function Siblings({ run, group, way, asked, content, isWhole }) {
  const { query } = useRoute();
  const all = order(content, isWhole);
  const first = Math.max(0, all.indexOf(Number(query.get("sequence") ?? all[0])));
  const overlays = useMemo(() => overlaysOf(content), [content]);
  const chosen = query.get("overlay");
  const overlay = overlays.find((one) => one.name === chosen) ?? null;
  const range = useMemo(() => overlay && rangeOf(overlay), [overlay]);
  const other = all.find((at) => String(at) === query.get("compare") && at !== all[first]) ?? null;
  const move = (by) => choose({ ...FOLDED, sequence: all[Math.max(0, Math.min(all.length - 1, first + by))] });
  const read = async (part, signal) => readContents(await ask(asked(part), signal));
  const write = (signal) =>
    groupFile(signal, { run, group, way, rows: all, content: isWhole ? content : null, read, chosen });
  useKeys({ "[": ["previous sibling", () => move(-1)], "]": ["next sibling", () => move(1)] });
  return html`
    <div class="filter">
      <${Select} title="Overlay" options=${[["", "none"], ...overlays.map(({ name, title }) => [name, title])]}
        value=${chosen ?? ""} onChange=${(event) => choose({ overlay: event.target.value })} />
      <label
        >Compare sequence ${all[first]} with <${Typed} type="number" min="0" max=${all.length - 1} step="1"
          name="compare" value=${query.get("compare") ?? ""}
          onChange=${(event) => choose({ ...FOLDED, compare: event.target.value })}
      /></label>
      <button type="button" disabled=${first === 0} onClick=${() => move(-1)}>Previous sibling</button>
      <button type="button" disabled=${first === all.length - 1} onClick=${() => move(1)}>Next sibling</button>
      <${Export} write=${write} />
      <span class="quiet">
        ${counted(all.length, "sequence")}, ${isWhole ? "best score first" : "in their own order"}. Underlined: in the
        loss. Point at a token for its values, or move with ← and →.
      </span>
      ${isWhole && range && html`<${Ramp} overlay=${overlay} range=${range} />`}
    </div>
    ${
      other !== null &&
      html`<${Compared} asked=${asked} content=${content} isWhole=${isWhole} left=${all[first]} right=${other} />`
    }
    <div class="siblings">
      ${all.slice(first, first + SIBLINGS).map((at) =>
        isWhole
          ? html`<${Sequence} key=${at} number=${at} at=${at} content=${content} overlays=${overlays}
                overlay=${overlay} tokens=${TOKENS} />`
          : html`<${Part} key=${at} asked=${asked} number=${at} chosen=${chosen} />`,
      )}
    </div>`;
}

function Compared({ asked, content, isWhole, left, right }) {
  const pathOf = (at) => (isWhole ? null : asked({ sequence: at, tokens: COMPARED }));
  const feeds = [left, right].map((at) => useFeed(pathOf(at), ONCE, CONTENTS));
  if (isWhole) {
    const [one, two] = [left, right].map((at) => ({ number: at, at, content }));
    return html`<${Comparison} key=${`${left} ${right}`} left=${one} right=${two} />`;
  }
  return html`<${Shown} feed=${feeds[0]} role="contents">
    ${(one) => html`<${Shown} feed=${feeds[1]} role="contents">
      ${(two) => html`<${Comparison} key=${`${left} ${right}`} left=${{ number: left, at: 0, content: one }}
          right=${{ number: right, at: 0, content: two }} />`}
    <//>`}
  <//>`;
}

function Part({ asked, number: at, chosen }) {
  const feed = useFeed(asked({ sequence: at, tokens: TOKENS }), ONCE, CONTENTS);
  return html`<${Shown} feed=${feed} role="contents">
    ${(content) => html`<${PartShown} content=${content} number=${at} chosen=${chosen} />`}
  <//>`;
}

function PartShown({ content, number: at, chosen }) {
  const overlays = useMemo(() => overlaysOf(content), [content]);
  const overlay = overlays.find(({ name }) => name === chosen) ?? null;
  return html`<${Sequence} number=${at} at=${0} content=${content} overlays=${overlays} overlay=${overlay}
    tokens=${TOKENS} isAlone />`;
}
