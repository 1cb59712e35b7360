// Contents of groups as the page has them. Token ids may have more digits than a number of the browser holds.

const LONG = /[[,\s]-?\d{16,}\s*[,\]]/;

/** Read contents. Ids that a number cannot hold are of the type BigInt, or stay inexact in a browser of before 2025. */
export function readContents(text) {
  const content = JSON.parse(text);
  if (!LONG.test(text)) return content;
  const { tokens, masks } = JSON.parse(text, (_, value, context) =>
    isExact(value) || !/^-?\d+$/.test(context?.source) ? value : BigInt(context.source),
  );
  return { ...content, tokens, masks };
}

const isExact = (value) => typeof value !== "number" || Number.isSafeInteger(value) || !Number.isInteger(value);

/** The id of a token as text. What has lost digits says so. */
export const idOf = (id) => (isExact(id) ? String(id) : `≈${id}`);

/** Write contents as JSON. */
export const rawContents = (content) =>
  JSON.stringify(content, (_, value) => (typeof value === "bigint" ? JSON.rawJSON(value) : value), 1);
