#!lua flags=allow-oom
-- finish_recheck: note that all chunks have been looked over for a change of the buffer.
--
-- Returns 1, or 0 if it is another one by now; then nothing has changed.
-- Cost: O(1).
--
local REPLAY = KEYS[1]  -- hash: the revision that is unsettled
local revision = ARGV[1]  -- they were looked over for

if redis.call('HGET', REPLAY, 'unsettled') ~= revision then return 0 end
return redis.call('HDEL', REPLAY, 'unsettled')
