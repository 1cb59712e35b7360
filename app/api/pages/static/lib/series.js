// Series over time that grow at their end, as the history of a run.

/**
 * Ask only for the last spans, and add them: for `useFeed`. Series shorter than `seconds` grow to that; then they keep
 * their length. If they have more than `most` spans, all is asked for again, in longer spans. So it is after a reset.
 */
export const growing = (seconds, most) => ({
  path(path, known) {
    const [place, query] = path.split("?");
    const asked = new URLSearchParams(query);
    // The last span was not over, and other processes may have written down more of the previous one.
    asked.set("from", Math.max(known.from_s, known.to_s - 2 * known.step_s));
    asked.set("step_s", known.step_s);
    return `${place}?${asked}`;
  },

  join(known, more) {
    if (more.first_epoch !== known.first_epoch) return null;
    if (more.times_s.length === 0) return known;
    const kept = known.times_s.indexOf(more.times_s[0]);
    if (more.step_s !== known.step_s || kept < 0) return null;
    const length = Math.max(known.times_s.length, Math.ceil(seconds / known.step_s) + 1);
    const cut = Math.min(kept, kept + more.times_s.length - length);
    const size = { cut: Math.max(0, cut), kept, more: more.times_s.length };
    if (kept - size.cut + size.more > most) return null;
    const joined = { ...more, from_s: known.times_s[size.cut] ?? more.from_s };
    for (const name of ["times_s", "run", "environments"]) joined[name] = joinedSeries(known[name], more[name], size);
    return joined;
  },
});

function joinedSeries(known, more, size) {
  const either = known ?? more;
  if (Array.isArray(either) && Array.isArray(either[0])) {
    return either.map((_, at) => joinedSeries(known?.[at], more?.[at], size));
  }
  if (Array.isArray(either)) {
    const before = known ?? new Array(size.kept).fill(null);
    return [...before.slice(size.cut, size.kept), ...(more ?? new Array(size.more).fill(null))];
  }
  const names = new Set([...Object.keys(known ?? {}), ...Object.keys(more ?? {})]);
  const part = (name) => joinedSeries(own(known, name), own(more, name), size);
  return Object.fromEntries([...names].map((name) => [name, part(name)]));
}

/** A property by a name that comes from others: `__proto__` is a name like any other. */
export const own = (object, name) => (object && Object.hasOwn(object, name) ? object[name] : undefined);
