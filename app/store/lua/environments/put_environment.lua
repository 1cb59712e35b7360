#!lua
-- put_environment: write an environment's record, if nobody changed any since it was decided.
--
-- KEYS[1] run           hash  epoch, id of the next environment that is new
-- KEYS[2] environments  hash  environment id -> JSON record
-- KEYS[3] seen          hash  environment id -> run clock at its last sign of life, ms
-- ARGV[1] epoch decided on   ARGV[2] environment id   ARGV[3] JSON record, unlike any other
-- ARGV[4] 1 to forget the signs of life of whoever had the id before, else 0
--
-- Returns 1, also for a record that is there already, or 0 if the epoch moved on; then nothing has changed.
-- Cost: O(1).
if redis.call('HGET', KEYS[2], ARGV[2]) == ARGV[3] then return 1 end
if (redis.call('HGET', KEYS[1], 'epoch') or '0') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
if ARGV[4] == '1' then redis.call('HDEL', KEYS[3], ARGV[2]) end
local following = tonumber(redis.call('HGET', KEYS[1], 'next_environment') or 0)
redis.call('HSET', KEYS[1], 'next_environment', math.max(following, ARGV[2] + 1))
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('PUBLISH', KEYS[1], 'environment')
return 1
