// One sequence: its messages as a conversation, and its tokens with at most one overlay.
import { html, useMemo, useState } from "../lib/html.js";
import { useStill } from "../lib/offline.js";
import { counted, measured, number, shown, shownLines } from "../lib/text.js";
import { Ramp, rangeOf } from "./overlays.js";
import { Tokens } from "./tokens.js";

const TEXT = 4000; // characters of a message, until the reader asks for more

/**
 * `content` has the sequence as its row `at`, and `number` is the sequence's own. `overlays` are all of the contents,
 * `overlay` is the one that tints, or null. `isAlone`: the contents have no other sequence, so the range is its own.
 */
export function Sequence({ number: own, at, content, overlays, overlay, tokens, text = TEXT, isAlone }) {
  const [most, setMost] = useState(tokens);
  const range = useMemo(() => overlay && rangeOf(overlay), [overlay]);
  const length = content.lengths[own];
  const isStill = useStill();
  const there = isStill ? Math.min(most, content.tokens[at].length) : content.tokens[at].length;
  const advantage = content.group_advantages[at];
  const messages = content.messages?.[at] ?? null;
  return html`<article class="sequence" aria-label=${`Sequence ${own}`}>
    <h3>
      Sequence ${own}, score ${measured(content.scores[at])}${", "}
      <span class="quiet"
        >advantage over the group ${measured(advantage)}, ${counted(length, "token")},${" "}
        ${versionOf(content, at, length)}</span
      >
    </h3>
    ${isAlone && range && html`<${Ramp} overlay=${overlay} range=${range} />`}
    ${messages !== null && html`<${Conversation} messages=${messages} text=${text} />`}
    <${Tokens} label=${`Tokens of sequence ${own}`} at=${at} content=${content} overlays=${overlays}
      overlay=${overlay} range=${range} most=${most} />
    ${
      most < there
        ? html`<button type="button" class="small" onClick=${() => setMost(most + 4 * tokens)}>More tokens</button>`
        : there < length && html`<p class="quiet">The first ${number(there)} of ${counted(length, "token")}.</p>`
    }
  </article>`;
}

// With versions of its tokens, a sequence was sampled by the first to the last of them. A part may not have them all.
function versionOf({ policy_version: ofGroup, policy_versions: ofTokens }, at, length) {
  const own = ofTokens?.[at] ?? [];
  if (own.length === length) {
    const least = own.reduce((one, other) => Math.min(one, other));
    const most = own.reduce((one, other) => Math.max(one, other));
    return least === most ? `version ${number(least)}` : `versions ${number(least)} to ${number(most)}`;
  }
  if (ofGroup == null) return "version unknown";
  return ofTokens ? `version ${number(ofGroup)} or later` : `version ${number(ofGroup)}`;
}

function Conversation({ messages, text }) {
  return html`<ol class="messages" aria-label="Messages">
    ${messages.map((message, at) => html`<${Message} key=${at} message=${message} text=${text} />`)}
  </ol>`;
}

function Message({ message, text }) {
  const [most, setMost] = useState(text);
  const { role, content } = message;
  const said = typeof content === "string" ? content : JSON.stringify(content ?? message);
  return html`<li>
    <b>${shown(role ?? "no role", 40)}</b>
    <p dir="auto">${shownLines(said, most)}</p>
    ${said.length > most && html`<button type="button" class="small" onClick=${() => setMost(most * 4)}>More</button>`}
  </li>`;
}
