#!lua flags=allow-oom
-- finish_recheck: note that all chunks have been looked over for a change of the buffer.
--
-- KEYS[1] replay  hash  the revision that is unsettled
-- ARGV[1] the revision they were looked over for
--
-- Returns 1, or 0 if it is another one by now; then nothing has changed.
-- Cost: O(1).
if redis.call('HGET', KEYS[1], 'unsettled') ~= ARGV[1] then return 0 end
return redis.call('HDEL', KEYS[1], 'unsettled')
