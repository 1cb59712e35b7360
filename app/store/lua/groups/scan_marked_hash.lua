#!lua flags=allow-oom
-- scan_marked_hash: find payloads of a marked hash that can be deleted, one part of the hash at a time.
--
-- Returns the next cursor, 0 after the last part, then the ids of those payloads that nothing names.
-- Cost: O(n), n those looked at.
--
-- include rows
local MARKED_HASH = KEYS[1]  -- hash: payload id -> its former entry
local RUN = KEYS[2]  -- hash: newest group
local cursor = ARGV[1]  -- 0, then the cursor that the previous call returned
local about = ARGV[2]  -- about how many payloads to look at
local NAMING = rest(KEYS, 3)  -- hash: all hashes that name payloads
-- include bulk
-- include referenced_payloads

local part = redis.pcall('HSCAN', MARKED_HASH, cursor, 'COUNT', about)
if part.err then return {'0'} end  -- a key of another type names nothing
local found, ids = {part[1]}, {}
for i = 1, #part[2], 2 do ids[#ids + 1] = part[2][i] end
local named = named_of(ids)
for _, id in ipairs(ids) do
  if not named[id] then found[#found + 1] = id end
end
return found
