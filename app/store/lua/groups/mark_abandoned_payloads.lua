#!lua flags=allow-oom
-- mark_abandoned_payloads: mark payloads that stay pending too long. A marked payload cannot be indexed.
--
-- Returns the number marked.
-- Cost: O(n log m), n those marked, m the unreferenced payloads.
--
local UNREFERENCED = KEYS[1]  -- zset: group id -> run clock when it became pending, ms, or -1 once marked for deletion
local before_ms = ARGV[1]  -- run clock; mark payloads that became pending until then
local most = ARGV[2]  -- most payloads to mark

local abandoned = redis.call('ZRANGEBYSCORE', UNREFERENCED, 0, before_ms, 'LIMIT', 0, most)
for _, group in ipairs(abandoned) do redis.call('ZADD', UNREFERENCED, -1, group) end
return #abandoned
