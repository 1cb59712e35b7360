#!lua flags=allow-oom
-- delete_curriculum: forget a curriculum and its name.
--
-- KEYS[1] run        hash  epoch
-- KEYS[2] curricula  hash  curriculum -> its id
-- KEYS[3..] the curriculum's own keys: hash and zset
-- ARGV[1] its name   ARGV[2] its id
--
-- Returns 1, or 0 if the name belongs to another curriculum by now, or to none.
-- Cost: O(1); values are freed in the background.
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('UNLINK', unpack(KEYS, 3))
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
return 1
