// Rows of environments. Of a run with very many, a page of them is asked for when the reader scrolls to its rows.
import { EVERY_S, ONCE, useFeed } from "../lib/feeds.js";
import { html, useEffect, useState } from "../lib/html.js";
import { number } from "../lib/text.js";
import { statusPath } from "./run.js";
import { Rows } from "./rows.js";

/** Whether an environment is there, as a word and its kind. */
export function presence(one) {
  if (!one.connected) return { kind: "idle", word: "left" };
  return one.alive ? { kind: "good", word: "alive" } : { kind: "warn", word: "silent" };
}

const AHEAD = 100; // rows below those in sight

/** As `Rows`, of all environments. `status` has the first page of them. */
export function EnvironmentRows({ run, status, ...list }) {
  const [later, setLater] = useState(new Map()); // pages by the id that they begin after
  const [inSight, setInSight] = useState(new Set());
  const pages = inOrder(status, later);
  const items = pages.flatMap((page) => page.environments);
  const next = pages.at(-1).next_after;
  const [wanted, setWanted] = useState([]);
  const look = (rows) => {
    setInSight(new Set(rows.map((one) => one.id)));
    const isNear = rows.length > 0 && items.indexOf(rows.at(-1)) >= items.length - AHEAD;
    if (isNear && next !== null) setWanted((asked) => (asked.includes(next) ? asked : [...asked, next]));
  };
  const note = (after, page) => setLater((known) => new Map(known).set(after, page));
  return html`${wanted.map(
      (after) => html`<${Page} key=${after} path=${statusPath(run, after)} note=${(page) => note(after, page)}
        isInSight=${later.get(after)?.environments.some((one) => inSight.has(one.id)) ?? true} />`,
    )}
    <${Rows} items=${items} id=${(one) => one.id} onSight=${look} ...${list} />
    ${
      next !== null &&
      html`<p class="quiet" role="status">
        ${number(items.length)} of ${number(status.registered_environments)} environments. More come as you scroll.
      </p>`
    }`;
}

function inOrder(first, later) {
  const pages = [first];
  while (later.has(pages.at(-1).next_after)) pages.push(later.get(pages.at(-1).next_after));
  return pages;
}

function Page({ path, note, isInSight }) {
  const { data } = useFeed(path, isInSight ? EVERY_S : ONCE);
  useEffect(() => {
    if (data !== null) note(data);
  }, [data]);
  return null;
}
