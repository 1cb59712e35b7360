#!lua flags=allow-oom
-- forget_run: let a run that holds nothing disappear together with its name, or leave it as it is.
--
-- KEYS[1] runs     set   names of runs
-- KEYS[2] run      hash  clock, configuration, newest group
-- KEYS[3] workers  zset  API process -> run clock at its last tick, ms
-- KEYS[4..] every other key of a run: hash, zset or set
-- ARGV[1] run
--
-- Returns 1, or 0 if it holds something; then nothing has changed.
-- Cost: O(workers).
if redis.call('EXISTS', unpack(KEYS, 4)) > 0 then return 0 end
local held = redis.call('HMGET', KEYS[2], 'config', 'latest')
if held[1] or held[2] then return 0 end
redis.call('UNLINK', KEYS[2], KEYS[3])
redis.call('SREM', KEYS[1], ARGV[1])
return 1
