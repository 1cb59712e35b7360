#!lua flags=allow-oom
-- mark_abandoned_payloads: mark pending payloads that were never indexed, so that they can no longer be.
--
-- KEYS[1] unreferenced  zset  group id -> run clock when it became pending, ms, or -1 once marked for deletion
-- ARGV[1] run clock before which a pending payload is marked, ms   ARGV[2] most at once
--
-- Returns the number marked.
-- Cost: O(n log m), n those marked, m the unreferenced payloads.
local abandoned = redis.call('ZRANGEBYSCORE', KEYS[1], 0, ARGV[1], 'LIMIT', 0, ARGV[2])
for _, group in ipairs(abandoned) do redis.call('ZADD', KEYS[1], -1, group) end
return #abandoned
