#!lua flags=allow-oom
-- drop_snapshot: delete a snapshot of the replay buffer.
--
-- Returns 1, or 0 if there is no such snapshot; then nothing has changed.
-- Cost: O(1); Redis frees the values in the background.
--
-- include clock
-- include rows
-- include replay_places
local RUN = KEYS[1]  -- hash: run clock
local MARKED_HASHES = KEYS[2]  -- set: tokens of marked hashes
local revision = ARGV[1]  -- revision that identifies the snapshot
local token = ARGV[2]  -- token of its marked hash
-- hash, zset: the keys of the snapshot, and its marked hash
local places = rows(KEYS, 3, PLACE)

local snapshot = places[1]
if redis.call('HGET', snapshot.replay, 'revision') ~= revision then return 0 end
advance_clock(RUN)
empty_place(snapshot, token, MARKED_HASHES)
return 1
