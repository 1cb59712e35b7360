#!lua flags=allow-oom
-- delete_replay: remove the replay buffer with its contents and snapshots, and mark its payloads for deletion.
--
-- Returns 1, also if there is no buffer, or 0 if the buffer has another revision; then nothing has changed.
-- Cost: O(1); Redis frees the values in the background.
--
-- include clock
-- include rows
-- include replay_places
local RUN = KEYS[1]  -- hash: run clock; its name is the channel that waiting requests listen to
local REPLAY = KEYS[2]  -- hash: revision
local MARKED_HASHES = KEYS[3]  -- set: tokens of marked hashes
local decided_on = ARGV[1]  -- revision that the decision is based on
-- hash, zset: the keys of each place, and its marked hash. First the buffer, then its snapshots
local places = rows(KEYS, 4, PLACE)
local tokens = rest(ARGV, 2)  -- of the marked hashes of the places

local revision = redis.call('HGET', REPLAY, 'revision')
if not revision then return 1 end
if revision ~= decided_on then return 0 end
advance_clock(RUN)
for i, place in ipairs(places) do empty_place(place, tokens[i], MARKED_HASHES) end
redis.call('PUBLISH', RUN, 'replay deleted')
return 1
