// The operators' page: finds the view of the address, and draws it in the frame.
import { follow } from "./lib/feeds.js";
import { html, render, useEffect, useErrorBoundary } from "./lib/html.js";
import { address, useRoute } from "./lib/route.js";
import { timeOf } from "./lib/time.js";
import { shown } from "./lib/text.js";
import { AboutView } from "./panels/about.js";
import { AuditView } from "./panels/audit.js";
import { BatchesView } from "./panels/batches.js";
import { CurriculumView } from "./panels/curriculum.js";
import { FreshnessView, RewardsView } from "./panels/distributions.js";
import { GroupsView } from "./panels/groups.js";
import { NowView } from "./panels/now.js";
import { ReplayView } from "./panels/replay.js";
import { RunsView } from "./panels/runs.js";
import { SharesView } from "./panels/shares.js";
import { TokensView } from "./panels/tokens.js";
import { WorkersView } from "./panels/workers.js";
import { Frame } from "./parts/frame.js";

const OF_THE_SERVICE = { runs: RunsView, about: AboutView, audit: AuditView, tokens: TokensView };
// What a view can open, by its name in the address.
const OPENED = { groups: "group", batches: "batch", curriculum: "item" };
const OF_A_RUN = {
  now: ["Now", NowView],
  shares: ["Shares", SharesView],
  freshness: ["Freshness", FreshnessView],
  rewards: ["Rewards", RewardsView],
  groups: ["Groups", GroupsView],
  batches: ["Batches", BatchesView],
  replay: ["Replay", ReplayView],
  curriculum: ["Curriculum", CurriculumView],
  workers: ["Workers", WorkersView],
};

function App() {
  const { view, run, query } = useRoute();
  const tabs = Object.entries(run === null ? {} : OF_A_RUN).map(([name, [title]]) => ({
    view: name,
    title,
    href: address(name, run, timeOf(query)),
  }));
  const View = run === null ? OF_THE_SERVICE[view] : OF_A_RUN[view]?.[1];
  const opened = query.get(OPENED[view]);
  const title = run === null ? view : `${run} · ${opened ? `${OPENED[view]} ${opened}` : view}`;
  useEffect(() => {
    document.title = `${shown(title, 80)} · Lachesis`;
  }, [title]);
  useEffect(() => (run === null ? undefined : follow(run)), [run]);
  return html`<${Frame} view=${view} run=${run} tabs=${tabs}>
    <${Guarded} key=${`${run} ${view}`}>
      ${View ? html`<${View} run=${run} />` : html`<p class="quiet">There is no view ${shown(view)}.</p>`}
    <//>
  <//>`;
}

// A view that fails says so, and the frame stays.
function Guarded({ children }) {
  const [error, retry] = useErrorBoundary((failure) => console.error(failure));
  if (!error) return children;
  return html`<div class="state" data-state="error">
    <p><strong>This view failed</strong>: ${shown(error.message, 500)}. Please report it.</p>
    <button type="button" onClick=${retry}>Try again</button>
  </div>`;
}

// Its address is relative to that of the page, which changes without a load.
const icon = document.querySelector("link[rel=icon]");
icon.href = new URL("icon.svg", import.meta.url).href;

const place = document.getElementById("app");
place.replaceChildren();
render(html`<${App} />`, place);
