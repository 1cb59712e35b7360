#!lua flags=allow-oom
-- add_pending_payloads: note payloads before they are written, so that unused ones can be found and deleted.
--
-- Returns the number added. It skips groups that are held. It also skips marked payloads, because another process may
-- be about to delete them.
-- Cost: O(n log m), n the groups, m the unreferenced payloads.
--
-- include rows
local RUN = KEYS[1]  -- hash: run clock
local GROUPS = KEYS[2]  -- hash: group id -> entry
local UNREFERENCED = KEYS[3]  -- zset: group id -> run clock when it became pending, ms, or -1 once marked for deletion
local group_ids = rest(ARGV, 1)
-- include clock

local clock = advance_clock(RUN)
local added = 0
for _, group in ipairs(group_ids) do
  if redis.call('HEXISTS', GROUPS, group) == 0 then
    added = added + redis.call('ZADD', UNREFERENCED, 'NX', clock, group)
  end
end
return added
