#!lua flags=allow-oom
-- drop_loading: forget a curriculum that is being loaded, if the load made no progress for too long.
--
-- KEYS[1] curricula_loading  zset  ids of curricula that are being loaded, by the run clock at their last progress
-- KEYS[2..] its keys: hash and zset
-- ARGV[1] its id   ARGV[2] run clock: a load with later progress stays; or '+inf'
--
-- Returns 1, or 0 if the load continues, or is not there.
-- Cost: O(1); values are freed in the background.
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not score or ARGV[2] ~= '+inf' and tonumber(score) > tonumber(ARGV[2]) then return 0 end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('UNLINK', unpack(KEYS, 2))
return 1
