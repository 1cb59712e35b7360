// Preact and htm, from one vendored file.
import { useReducer } from "../vendor/preact/standalone.module.js";

export {
  createContext,
  html,
  render,
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "../vendor/preact/standalone.module.js";

/** Return a function that draws the component again. */
export function useRedraw() {
  const [, redraw] = useReducer((count) => count + 1, 0);
  return redraw;
}
