// The token ledger: what happened to every generated token.
import { html, useRef } from "../lib/html.js";
import { compact, measured, number } from "../lib/text.js";

// In the order in which tokens go through a run. The first two are always named.
const PARTS = ["trained", "queued", "leased", "stale", "filtered", "dropped", "surplus"];
const ALWAYS = 2;

/**
 * The ledger as a sum and as one bar. `ledger` is that of a run or of an environment. A part that was there stays, so
 * that the sum does not take another line from time to time.
 */
export function Ledger({ ledger }) {
  const seen = useRef(new Set(PARTS.slice(0, ALWAYS)));
  const generated = ledger.generated_tokens;
  const parts = PARTS.map((name) => ({ name, tokens: ledger[`${name}_tokens`], cost: ledger.cost?.[name] ?? null }));
  for (const part of parts) if (part.tokens > 0) seen.current.add(part.name);
  const named = parts.filter((part) => seen.current.has(part.name));
  return html`<div class="ledger">
    <p>
      <span>
        <strong title=${number(generated)}>${compact(generated)}</strong> tokens
        generated${price(ledger.cost?.generated)}${" ="}
      </span>
      ${named.map(
        ({ name, tokens, cost }, at) => html`<span key=${name} class="part" title=${`${number(tokens)} tokens ${name}`}>
          ${at > 0 ? "+ " : ""}<i class="swatch" data-part=${name} aria-hidden="true"></i>${" "}
          <b>${compact(tokens)}</b> ${name}${price(cost)}
        </span>`,
      )}
    </p>
    <div class="parts" aria-hidden="true">
      ${parts.map(
        ({ name, tokens }) =>
          tokens > 0 && html`<span key=${name} data-part=${name} style=${{ flexGrow: tokens / generated }}></span>`,
      )}
    </div>
  </div>`;
}

const price = (cost) => (cost == null ? "" : ` (cost ${measured(cost)})`);
