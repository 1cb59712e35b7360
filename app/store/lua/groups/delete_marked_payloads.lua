#!lua flags=allow-oom
-- delete_marked_payloads: delete marked payloads that nothing names, and unmark the others.
--
-- This is one step. So a call that is repeated, or comes late, deletes no payload that was indexed in the meantime.
--
-- Returns how many were looked at, and how many of these were deleted.
-- Cost: O(n log m), n those looked at, m the unreferenced payloads.
--
-- include rows
local UNREFERENCED = KEYS[1]  -- zset: payloads that are pending or marked for deletion (score: -1)
local RUN = KEYS[2]  -- hash: newest group
local PAYLOADS = KEYS[3]  -- strings: what the keys of all payloads begin with
local most = ARGV[1]  -- most payloads to look at
local NAMING = rest(KEYS, 4)  -- hash: all hashes that name payloads
-- include bulk
-- include referenced_payloads

local ids = redis.call('ZRANGEBYSCORE', UNREFERENCED, -1, -1, 'LIMIT', 0, most)
local named, unnamed = named_of(ids), {}
for _, id in ipairs(ids) do
  if not named[id] then unnamed[#unnamed + 1] = PAYLOADS .. id end
end
if #unnamed > 0 then redis.call('UNLINK', unpack(unnamed)) end
write_list('ZREM', UNREFERENCED, ids)
return {#ids, #unnamed}
