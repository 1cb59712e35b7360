#!lua flags=allow-oom
-- forget_run: delete an empty run together with its name; leave any other run unchanged.
--
-- Returns 1, or 0 if it holds something; then nothing has changed.
-- Cost: O(workers).
--
-- include rows
local RUNS = KEYS[1]  -- set: names of runs
local RUN = KEYS[2]  -- hash: clock, configuration, newest group
local WORKERS = KEYS[3]  -- zset: API process -> run clock at its last tick, ms
local name = ARGV[1]  -- of the run
local ALL_HELD = rest(KEYS, 4)  -- every other key of a run

if redis.call('EXISTS', unpack(ALL_HELD)) > 0 then return 0 end
local held = redis.call('HMGET', RUN, 'config', 'latest')
if held[1] or held[2] then return 0 end
redis.call('UNLINK', RUN, WORKERS)
redis.call('SREM', RUNS, name)
return 1
