// Keys. A view lists its own; none works while the reader types.
import { useLayoutEffect } from "./html.js";

const FIELDS = "input, textarea, select";

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
    return () => removeEventListener("keydown", press);
  });
}
