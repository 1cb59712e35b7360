#!lua flags=allow-oom
-- find_garbage: look payloads over that may be garbage; those that something does name are none, and not looked at again.
--
-- KEYS[1] unindexed  zset  payloads that are reserved or garbage (score: -1)
-- KEYS[2] run        hash, and KEYS[3..] hash: each that names payloads (named_payloads)
-- ARGV[1] most at once
--
-- Returns how many were looked at, then the ids of those that nothing names.
-- Cost: O(n log m), n those looked at, m the unindexed payloads.
--
-- include named_payloads
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], -1, -1, 'LIMIT', 0, ARGV[1])
local found = {#ids}
for _, id in ipairs(ids) do
  if is_named(id) then redis.call('ZREM', KEYS[1], id) else found[#found + 1] = id end
end
return found
