// Two distributions on one axis, outlined: what was generated, and what of it was trained on.
import { html } from "../lib/html.js";
import { counted, measured } from "../lib/text.js";
import { Stroke } from "./names.js";

/** Whether bins grow with their values. */
export const isLog = (edges) => edges.at(-1) - edges.at(-2) > 1.5 * (edges[1] - edges[0]);

/** `generated` and `trained` are groups by bin between `edges`. Each outline has the same area. */
export function Outlines({ title, edges, generated, trained }) {
  if (edges.length === 0) return html`<p class="quiet">No data for this time.</p>`;
  const [came, went] = [parts(generated), parts(trained)];
  const most = Math.max(...came.shares, ...went.shares) || 1;
  const bins = edges.length - 1;
  return html`<div class="chart outlines">
    <ul class="labels">
      <li><${Stroke} token="edge" />generated
        <b>${counted(came.total, "group")}</b></li>
      <li><${Stroke} token="accent" dash=${1} />trained on
        <b>${counted(went.total, "group")}</b></li>
    </ul>
    <svg viewBox=${`0 0 ${bins} 1`} preserveAspectRatio="none" role="img" aria-label=${title}>
      <path data-of="generated" d=${outline(came.shares, most)} />
      <path data-of="trained" d=${outline(went.shares, most)} />
    </svg>
    <div class="ends quiet" aria-hidden="true">
      <span>${measured(edges[0])}</span
      ><span>${bins > 1 && measured(edges[Math.floor(bins / 2)])}${isLog(edges) && ", log scale"}</span
      ><span>${measured(edges.at(-1))}</span>
    </div>
  </div>`;
}

function parts(counts) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  return { total, shares: counts.map((count) => (total > 0 ? count / total : 0)) };
}

const outline = (shares, most) =>
  `M0 1${shares.map((share, bin) => `V${1 - (0.98 * share) / most}H${bin + 1}`).join("")}V1`;
