// A list that draws only the rows in sight. It scrolls with the page, and its rows have one height.
import { html, useEffect, useLayoutEffect, useRedraw, useRef } from "../lib/html.js";
import { useKeys } from "../lib/keys.js";
import { noteRow, rowOf } from "../lib/route.js";
import { useStill } from "../lib/offline.js";
import { number } from "../lib/text.js";

const AROUND = 4;
const STILL = 1000; // rows in a file

// What rows are for screen readers. In a table they hear the title of a column with each of its values.
const LIST = {
  all: "ul",
  one: "li",
  ofAll: (label) => ({ role: "list", "aria-label": label }),
  ofOne: (at, count) => ({ "aria-setsize": count, "aria-posinset": at + 1 }),
};
const TABLE = {
  all: "div",
  one: "div",
  ofAll: () => ({ role: "rowgroup" }),
  ofOne: (at) => ({ role: "row", "aria-rowindex": at + 2 }), // after the row of titles
};

/**
 * Draw rows of a list. `j` and `k` move between them. A file has the first ones.
 *
 * `items` are the rows, `id(item)` their keys, `height` theirs in pixels, `draw(item)` what they show: the row's first
 * link or button gets the focus, or else the row. `onSight(items)` hears which are in sight. With `least`, the width
 * in pixels that a row needs, wide screens have several rows side by side. With `titles`, `[title, class]` for each
 * column, they are a table, and `draw` makes an entry with a `role="cell"` for each column. `kind` is its class.
 */
export function Rows(list) {
  const isStill = useStill();
  const { items, titles } = list;
  const roles = titles && items.length > 0 ? TABLE : LIST; // an empty list needs no titles
  const rows = isStill
    ? html`<${StillRows} ...${list} ...${roles} items=${items.slice(0, STILL)} />`
    : html`<${RowsInSight} ...${list} ...${roles} />`;
  const some = `The first ${number(STILL)} of ${number(items.length)}.`;
  return html`${roles === TABLE ? html`<${Table} ...${list}>${rows}<//>` : rows}
    ${isStill && items.length > STILL && html`<p class="notice">${some}</p>`}`;
}

function Table({ items, label, titles, kind, children }) {
  return html`<div role="table" aria-label=${label} aria-rowcount=${items.length + 1}>
    <div class=${`entry ${kind} heads quiet`} role="row" aria-rowindex="1">
      ${titles.map(([title, place]) => html`<span key=${title} role="columnheader" class=${place}>${title}</span>`)}
    </div>
    ${children}
  </div>`;
}

function StillRows({ items, id, height, draw, label, all, one, ofAll, ofOne }) {
  return html`<${all} class="rows still" ...${ofAll(label)}>
    ${items.map(
      (item, at) => html`<${one} key=${id(item)} ...${ofOne(at, items.length)} style=${{ height: `${height}px` }}
        >${draw(item)}<//
      >`,
    )}
  <//>`;
}

function RowsInSight({ items, id, height, draw, label, all, one, ofAll, ofOne, onSight, least = Infinity }) {
  const list = useRef(null);
  const left = useRef(rowOf(label)); // the row that the reader was at, if they come back
  const focused = useRef(items.findIndex((item) => id(item) === left.current));
  const redraw = useRedraw();
  useEffect(() => {
    const options = { passive: true };
    addEventListener("scroll", redraw, options);
    addEventListener("resize", redraw, options);
    redraw();
    return () => {
      removeEventListener("scroll", redraw);
      removeEventListener("resize", redraw);
    };
  }, []);
  const { top, width } = list.current?.getBoundingClientRect() ?? { top: 0, width: 0 };
  const columns = Math.max(1, Math.floor(width / least));
  const lines = Math.ceil(items.length / columns);
  const first = columns * Math.max(0, Math.min(lines, Math.floor(-top / height)) - AROUND);
  const inView = Math.max(0, Math.ceil((innerHeight - top) / height)); // none of a list that is below
  const last = columns * Math.min(lines, inView + AROUND);
  const inSight = items.slice(first, Math.max(first, last));
  const names = inSight.map(id).join("\n");
  useEffect(() => onSight?.(inSight), [names]);

  const wanted = useRef(focused.current >= 0);
  const focus = () => {
    const row = list.current?.querySelector(`[data-row="${focused.current}"]`);
    (row?.querySelector("a, button") ?? row)?.focus({ preventScroll: true });
    return row !== null;
  };
  useLayoutEffect(() => {
    if (wanted.current && list.current !== null) wanted.current = !focus();
  });
  const move = (by) => {
    const at = Math.max(0, Math.min(items.length - 1, focused.current + by));
    focused.current = at;
    const place = list.current.getBoundingClientRect().top + Math.floor(at / columns) * height;
    if (place < 80) scrollBy(0, place - 80);
    else if (place + height > innerHeight) scrollBy(0, place + height - innerHeight);
    wanted.current = true;
    redraw();
  };
  useKeys({ j: ["next row", () => move(1)], k: ["previous row", () => move(-1)] });
  const note = (event) => {
    const row = event.target.closest("[data-row]");
    if (!row) return;
    focused.current = Number(row.dataset.row);
    noteRow(label, id(items[focused.current]));
  };

  return html`<${all}
    class="rows"
    ...${ofAll(label)}
    ref=${list}
    style=${{ height: `${lines * height}px`, "--columns": columns }}
    onfocusin=${note}
  >
    ${inSight.map(
      (item, at) =>
        html`<${one}
          key=${id(item)}
          tabindex="-1"
          data-row=${first + at}
          ...${ofOne(first + at, items.length)}
          style=${{
            top: `${Math.floor((first + at) / columns) * height}px`,
            height: `${height}px`,
            "--column": (first + at) % columns,
          }}
        >
          ${draw(item)}
        <//>`,
    )}
  <//>`;
}
