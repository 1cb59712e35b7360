// Keys. A view lists its own; none works while the reader types.
import { useLayoutEffect } from "./html.js";

const FIELDS = "input, textarea, select";
const heard = new Set();

/** The keys that work now, as `useKeys` takes them. */
export const keysHeard = () => Object.assign({}, ...heard);

/** Call what a key names: `{key: [what it does, function]}`. A view that is seen hears its keys. */
export function useKeys(keys) {
  useLayoutEffect(() => {
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.(FIELDS)) return;
      if (document.querySelector("dialog[open]")) return;
      const [, act] = keys[event.key] ?? [];
      if (!act) return;
      event.preventDefault();
      act(event);
    };
    addEventListener("keydown", press);
    heard.add(keys);
    return () => {
      removeEventListener("keydown", press);
      heard.delete(keys);
    };
  });
}
