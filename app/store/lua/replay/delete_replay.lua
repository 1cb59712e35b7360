#!lua flags=allow-oom
-- delete_replay: remove the replay buffer with its contents and snapshots, and mark its payloads for deletion.
--
-- Returns 1, also if there is none, or 0 if the buffer changed; then nothing has changed.
-- Cost: O(1); values are freed in the background.
--
-- include rows
-- include replay_places
local RUN = KEYS[1]  -- hash: names the channel that those who wait listen to
local REPLAY = KEYS[2]  -- hash: revision
local MARKED_HASHES = KEYS[3]  -- set: their tokens
local decided_on = ARGV[1]  -- revision
-- hash, zset: each place and the name of its marked hash: the buffer, then its snapshots
local places = rows(KEYS, 4, PLACE)
local tokens = rest(ARGV, 2)  -- of the marked hashes of the places

local revision = redis.call('HGET', REPLAY, 'revision')
if not revision then return 1 end
if revision ~= decided_on then return 0 end
for i, place in ipairs(places) do empty_place(place, tokens[i], MARKED_HASHES) end
redis.call('PUBLISH', RUN, 'replay deleted')
return 1
