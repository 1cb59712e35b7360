#!lua flags=allow-oom
-- find_marked_payloads: find marked payloads that can be deleted; unmark those that something still names.
--
-- Returns how many were looked at, then the ids of those that nothing names.
-- Cost: O(n log m), n those looked at, m the unreferenced payloads.
--
-- include rows
local UNREFERENCED = KEYS[1]  -- zset: payloads that are pending or marked for deletion (score: -1)
local RUN = KEYS[2]  -- hash: newest group
local most = ARGV[1]  -- most payloads to look at
local NAMING = rest(KEYS, 3)  -- hash: all hashes that name payloads
-- include bulk
-- include referenced_payloads

local ids = redis.call('ZRANGEBYSCORE', UNREFERENCED, -1, -1, 'LIMIT', 0, most)
local found, named = {#ids}, named_of(ids)
for _, id in ipairs(ids) do
  if named[id] then redis.call('ZREM', UNREFERENCED, id) else found[#found + 1] = id end
end
return found
