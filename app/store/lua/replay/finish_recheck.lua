#!lua flags=allow-oom
-- finish_recheck: note that all chunks were checked after a change of the buffer.
--
-- Returns 1, or 0 if chunks must be checked for another revision; then nothing has changed.
-- Cost: O(1).
--
local REPLAY = KEYS[1]  -- hash: `unsettled`: revision to check chunks for
local revision = ARGV[1]  -- that chunks were checked for

if redis.call('HGET', REPLAY, 'unsettled') ~= revision then return 0 end
return redis.call('HDEL', REPLAY, 'unsettled')
