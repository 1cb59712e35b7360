#!lua flags=allow-oom
-- forget_run: delete an empty run together with its name; leave any other run unchanged.
--
-- Returns 1, or 0 if the run holds data; then nothing has changed.
-- Cost: O(1).
--
-- include rows
local RUNS = KEYS[1]  -- zset: names of runs by the service clock at which they need maintenance, ms
local RUN = KEYS[2]  -- hash: clock, configuration, newest group
local EVENTS = KEYS[3]  -- stream: events; a run that has only events is empty
local name = ARGV[1]  -- of the run
local ALL_HELD = rest(KEYS, 4)  -- every other key of a run

if redis.call('EXISTS', unpack(ALL_HELD)) > 0 then return 0 end
local held = redis.call('HMGET', RUN, 'config', 'latest')
if held[1] or held[2] then return 0 end
redis.call('UNLINK', RUN, EVENTS)
redis.call('ZREM', RUNS, name)
return 1
