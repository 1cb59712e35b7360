#!lua flags=allow-oom
-- note_running: note how many groups an environment says it has started and not submitted.
--
-- KEYS[1] environments  hash  environment id -> JSON record
-- KEYS[2] running       hash  environment id -> groups
-- ARGV[1] environment id   ARGV[2] groups
--
-- Returns 1, or 0 if there is no such environment.
-- Cost: O(1).
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return 1
