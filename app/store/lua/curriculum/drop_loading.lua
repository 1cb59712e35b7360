#!lua flags=allow-oom
-- drop_loading: forget a curriculum that is being loaded, if the load made no progress for too long.
--
-- Returns 1, or 0 if the load continues, or does not exist.
-- Cost: O(1); Redis frees the values in the background.
--
-- include rows
local CURRICULA_LOADING = KEYS[1]  -- zset: ids of curricula that are being loaded, by run clock of their last progress
local deleted_keys = rest(KEYS, 2)  -- hash and zset: the keys of the curriculum
local curriculum_id = ARGV[1]
local until_ms = ARGV[2]  -- run clock: a load with later progress stays; '' drops any load

local score = redis.call('ZSCORE', CURRICULA_LOADING, curriculum_id)
if not score or until_ms ~= '' and tonumber(score) > tonumber(until_ms) then return 0 end
redis.call('ZREM', CURRICULA_LOADING, curriculum_id)
redis.call('UNLINK', unpack(deleted_keys))
return 1
