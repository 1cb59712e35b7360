#!lua flags=allow-oom
-- announce_run: note that a run exists, so that every API process looks after it.
--
-- Returns 1, also for a run noted before, or 0 if there are too many runs; then nothing has changed.
-- Cost: O(1).
--
local RUNS = KEYS[1]  -- set: names of runs
local name = ARGV[1]  -- of the run
local most_runs = ARGV[2]

if redis.call('SISMEMBER', RUNS, name) == 1 then return 1 end
if redis.call('SCARD', RUNS) >= tonumber(most_runs) then return 0 end
redis.call('SADD', RUNS, name)
return 1
