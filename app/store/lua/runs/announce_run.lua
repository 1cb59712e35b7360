#!lua flags=allow-oom
-- announce_run: note that a run exists, so that it is maintained.
--
-- Returns 1, also if the run was noted before, or 0 if there are too many runs; then nothing has changed.
-- Cost: O(1).
--
local RUNS = KEYS[1]  -- zset: names of runs by the service clock at which they need maintenance, ms
local name = ARGV[1]  -- of the run
local most_runs = ARGV[2]  -- that may exist

if redis.call('ZSCORE', RUNS, name) then return 1 end
if redis.call('ZCARD', RUNS) >= tonumber(most_runs) then return 0 end
redis.call('ZADD', RUNS, 0, name)
return 1
