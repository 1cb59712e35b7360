#!lua flags=allow-oom
-- announce_run: note that a run exists, so that every API process looks after it.
--
-- KEYS[1] runs  set  names of runs
-- ARGV[1] run   ARGV[2] most runs
--
-- Returns 1, also for a run noted before, or 0 if there are as many as may be; then nothing has changed.
-- Cost: O(1).
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 1 then return 1 end
if redis.call('SCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('SADD', KEYS[1], ARGV[1])
return 1
