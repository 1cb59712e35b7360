#!lua
-- take_snapshot: copy the replay buffer, and delete the snapshots that the copy replaces.
--
-- Returns its `replay` hash, also if an earlier call took it, or {} if the buffer or the policy version changed; then
-- nothing has changed.
-- Cost: O(m), m the chunks and fragments held. Redis serves no other request during that time.
--
-- include clock
-- include rows
-- include replay_places
local RUN = KEYS[1]  -- hash: run clock, policy version
local MARKED_HASHES = KEYS[2]  -- set: tokens of marked hashes
local decided_on = ARGV[1]  -- revision that the decision is based on
local policy_version = ARGV[2]  -- that the decision is based on
local name = ARGV[3]  -- name of the snapshot
local clock_ms = ARGV[4]  -- run clock
-- hash, zset: the keys of each place, and its marked hash. The buffer, the target, then snapshots to drop
local places = rows(KEYS, 3, PLACE)
local tokens = rest(ARGV, 5)  -- of the marked hashes of the snapshots to drop

local buffer, target = places[1], places[2]
local taken = redis.call('HMGET', target.replay, 'revision', 'snapshot')
if taken[1] == string.format('%.0f', decided_on + 1) and taken[2] == name then
  return redis.call('HGETALL', target.replay)
end
if redis.call('HGET', buffer.replay, 'revision') ~= decided_on then return {} end
if (redis.call('HGET', RUN, 'policy_version') or '0') ~= policy_version then return {} end
advance_clock(RUN)
for i, token in ipairs(tokens) do empty_place(places[2 + i], token, MARKED_HASHES) end
-- The revision identifies a snapshot. The buffer has this revision at no other time.
local revision = redis.call('HINCRBY', buffer.replay, 'revision', 1)
if redis.call('HEXISTS', buffer.replay, 'unsettled') == 1 then
  redis.call('HSET', buffer.replay, 'unsettled', revision)
end
copy_place(buffer, target)
redis.call('HSET', target.replay, 'snapshot', name, 'snapshot_ms', clock_ms, 'snapshot_version', policy_version)
return redis.call('HGETALL', target.replay)
