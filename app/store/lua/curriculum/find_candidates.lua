#!lua flags=no-writes
-- find_candidates: read what posteriors of items are computed from; nothing is changed.
--
-- Returns {the items in ranges of the order of categories, '' for one in flight; how often each was observed, passed
-- and failed, three packed doubles an item, 0 of an item that was never observed; the priors of those items, '-' for
-- none}.
-- Cost: O(r log m + n), r the ranges, n the items in them, m the items there are.
--
-- include curriculum_keys
-- include bulk
-- include rows
local clock_ms = ARGV[1]  -- run clock: items in flight then are left out; or '' to take all items
local ranges = rows(ARGV, 2, {'first', 'last'})  -- ranks

local NEVER = string.rep('\0', 24)
local keys, numbers, priors, unseen = {}, {}, {}, {}
for _, range in ipairs(ranges) do
  local members = redis.call('ZRANGE', c.category, range.first, range.last)
  local estimates = #members > 0 and redis.call('HMGET', c.estimates, unpack(members)) or {}
  for n, key in ipairs(members) do
    local packed, at = estimates[n], #keys + 1
    keys[at] = key
    numbers[at] = packed and string.sub(packed, 9, 32) or NEVER  -- as curriculum_estimates packs them
    if not packed then unseen[#unseen + 1] = key end
  end
end
for n, entry in ipairs(read('HMGET', c.items, unseen)) do
  priors[n] = entry and string.match(entry, '^%d+ (%S+)') or '-'
end
if clock_ms ~= '' and redis.call('ZCOUNT', c.in_flight, '(' .. clock_ms, '+inf') > 0 then
  for n, until_ms in ipairs(read('ZMSCORE', c.in_flight, keys)) do
    if tonumber(until_ms or 0) > tonumber(clock_ms) then keys[n] = '' end
  end
end
return {keys, table.concat(numbers), priors}
