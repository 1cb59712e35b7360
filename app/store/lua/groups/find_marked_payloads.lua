#!lua flags=allow-oom
-- find_marked_payloads: find marked payloads that can be deleted; unmark those that something still names.
--
-- KEYS[1] unreferenced  zset  payloads that are pending or marked for deletion (score: -1)
-- KEYS[2] run        hash, and KEYS[3..] hash: each that names payloads (referenced_payloads)
-- ARGV[1] most at once
--
-- Returns how many were looked at, then the ids of those that nothing names.
-- Cost: O(n log m), n those looked at, m the unreferenced payloads.
--
-- include referenced_payloads
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], -1, -1, 'LIMIT', 0, ARGV[1])
local found = {#ids}
for _, id in ipairs(ids) do
  if is_named(id) then redis.call('ZREM', KEYS[1], id) else found[#found + 1] = id end
end
return found
