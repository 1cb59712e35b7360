// How the contents of a group are read: all at once, or a sequence at a time if they are large.

const WHOLE_BYTES = 1024 * 1024;

/** Whether the contents of a group come all at once. */
export const isWhole = (group) => group.payload_bytes <= WHOLE_BYTES;

export const contentPath = (run, id) =>
  `v1/runs/${encodeURIComponent(run)}/groups/${encodeURIComponent(id)}/content`;

/** The path of the contents, or of a `part`: of a sequence. `isText`: with the texts of tokens. */
export const partPath = (path, part, isText) =>
  `${path}?${new URLSearchParams({ ...part, ...(isText ? { text: true } : {}) })}`;

/** The numbers of the sequences, best score first; those of a large group in their own order. */
export function order(content, isAll) {
  const all = content.lengths.map((_, at) => at);
  return isAll ? all.sort((one, other) => content.scores[other] - content.scores[one] || one - other) : all;
}
