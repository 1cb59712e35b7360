#!lua flags=allow-oom
-- drop_snapshot: delete a snapshot of the replay buffer.
--
-- Returns 1, or 0 if it is not there any more; then nothing has changed.
-- Cost: O(1); values are freed in the background.
--
-- include rows
-- include replay_places
local MARKED_HASHES = KEYS[1]  -- set: their tokens
local revision = ARGV[1]  -- the revision it is known by
local token = ARGV[2]  -- of its marked hash
-- hash, zset: each place and the name of its marked hash: the snapshot
local places = rows(KEYS, 2, PLACE)

local snapshot = places[1]
if redis.call('HGET', snapshot.replay, 'revision') ~= revision then return 0 end
empty_place(snapshot, token, MARKED_HASHES)
return 1
