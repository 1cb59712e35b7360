#!lua flags=allow-oom
-- add_pending_payloads: announce payloads that are about to be written, so that none is ever lost track of.
--
-- KEYS[1] run        hash  run clock
-- KEYS[2] recent     zset  group id -> run clock at admission, ms
-- KEYS[3] unreferenced  zset  group id -> run clock when it became pending, ms, or -1 once marked for deletion
-- ARGV[1..n] group ids
--
-- Returns the number added; groups that were admitted already are passed over, and so are marked payloads:
-- somebody may be about to remove them.
-- Cost: O(n log m), n the groups, m the unreferenced payloads.
--
-- include clock
local clock = advance_clock(KEYS[1])
local reserved = 0
for _, group in ipairs(ARGV) do
  if not redis.call('ZSCORE', KEYS[2], group) then
    reserved = reserved + redis.call('ZADD', KEYS[3], 'NX', clock, group)
  end
end
return reserved
