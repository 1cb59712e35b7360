#!lua flags=allow-oom
-- delete_curriculum: forget a curriculum and its name.
--
-- Returns 1, or 0 if another curriculum has the name, or none; then nothing has changed.
-- Cost: O(1); Redis frees the values in the background.
--
-- include rows
local RUN = KEYS[1]  -- hash: epoch
local CURRICULA = KEYS[2]  -- hash: curriculum -> its id
local deleted_keys = rest(KEYS, 3)  -- hash and zset: the keys of the curriculum
local name = ARGV[1]  -- of the curriculum
local curriculum_id = ARGV[2]
-- include next_number

if redis.call('HGET', CURRICULA, name) ~= curriculum_id then return 0 end
redis.call('HDEL', CURRICULA, name)
redis.call('UNLINK', unpack(deleted_keys))
next_number(RUN, 'epoch')
return 1
