#!lua flags=allow-oom
-- set_run_field: write one small fact about a run, also when memory is full: a trainer must be able to empty the queue.
--
-- KEYS[1] run  hash  the field
-- ARGV[1] field   ARGV[2] value   ARGV[3] 1 to keep a value that is there already, else 0
--
-- Returns 1 if the field is new, else 0. A run that is not there stays so: 0.
-- Cost: O(1).
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if ARGV[3] == '1' then return redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) end
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
