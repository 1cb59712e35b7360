#!lua flags=allow-oom
-- finish_sweep: note that all waiting groups have been checked against the policy version.
--
-- Returns 1, or 0 if another sweep was requested in the meantime; then nothing has changed.
-- Cost: O(1).
--
local RUN = KEYS[1]  -- hash: number of the sweep to do
local sweep = ARGV[1]  -- its number

if redis.call('HGET', RUN, 'unswept') ~= sweep then return 0 end
return redis.call('HDEL', RUN, 'unswept')
