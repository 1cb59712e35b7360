// What the browser keeps for the page. If the reader blocks that, the page keeps it until it is left.

function storage(name) {
  try {
    window[name].getItem(""); // throws if it is blocked
    return window[name];
  } catch {
    const values = new Map();
    return {
      getItem: (key) => values.get(key) ?? null,
      setItem: (key, value) => values.set(key, value),
      removeItem: (key) => values.delete(key),
    };
  }
}

/** Kept in this browser. */
export const local = storage("localStorage");

/** Kept in this tab of the browser, until it is closed. */
export const session = storage("sessionStorage");
