#!lua flags=allow-oom
-- set_run_field: write one small fact about a run, even if memory is full, so that trainers can empty the queue.
--
-- Returns 1 if the field is new, else 0. 0 if there is no such run; then nothing is stored.
-- Cost: O(1).
--
local RECORD = KEYS[1]  -- hash: the field
local field = ARGV[1]
local value = ARGV[2]
local keep = ARGV[3]  -- 1 to keep a value that is there already, else 0

if redis.call('EXISTS', RECORD) == 0 then return 0 end
if keep == '1' then return redis.call('HSETNX', RECORD, field, value) end
return redis.call('HSET', RECORD, field, value)
