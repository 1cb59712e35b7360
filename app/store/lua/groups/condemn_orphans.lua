#!lua flags=allow-oom
-- condemn_orphans: give up on reservations that were never admitted, so that they can no longer be.
--
-- KEYS[1] unindexed  zset  group id -> run clock at reservation, ms, or -1 for garbage
-- ARGV[1] run clock before which a reservation is given up, ms   ARGV[2] most at once
--
-- Returns the number given up.
-- Cost: O(n log m), n those given up, m the unindexed payloads.
local orphans = redis.call('ZRANGEBYSCORE', KEYS[1], 0, ARGV[1], 'LIMIT', 0, ARGV[2])
for _, group in ipairs(orphans) do redis.call('ZADD', KEYS[1], -1, group) end
return #orphans
