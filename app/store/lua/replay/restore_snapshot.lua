#!lua
-- restore_snapshot: replace the replay buffer by a prepared snapshot. Samples of the current buffer end. Batches keep
-- their reservations of chunks that the snapshot has.
--
-- Returns 1, also if an earlier call restored it, or 0 if the buffer or the policy version changed, or the snapshot is
-- gone; then nothing has changed.
-- Cost: O(m), m the chunks and fragments of the snapshot. Redis serves no other request during that time.
--
-- include clock
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
-- include replay_retire
-- include replay_ends
-- include replay_holds
-- include rows
-- include replay_places
local MARKED_HASHES = KEYS[24]  -- set: tokens of marked hashes
local token = ARGV[1]  -- token of the buffer's marked hash; identifies this restoration, too
local decided_on = ARGV[2]  -- revision that the decision is based on
local policy_version = ARGV[3]  -- that the decision is based on
local snapshot_revision = ARGV[4]  -- revision that identifies the snapshot
local max_reuse = ARGV[5]  -- most uses of a chunk at the snapshot, or ''
local memory_ms = ARGV[6]  -- how long the ends of samples are remembered, ms
local settle = ARGV[7]  -- 1 if chunks must be checked afterwards, else 0
-- hash, zset: the keys of each place, and its marked hash. First the buffer, then the snapshot
local places = rows(KEYS, 25, PLACE)

local buffer, snapshot = places[1], places[2]
local now = redis.call('HMGET', REPLAY, 'revision', 'arrivals', 'restored')
if now[3] == token then return 1 end
if now[1] ~= decided_on or redis.call('HGET', snapshot.replay, 'revision') ~= snapshot_revision then return 0 end
if (redis.call('HGET', RUN, 'policy_version') or '0') ~= policy_version then return 0 end
local states, reserved = redis.call('HGETALL', SAMPLE_STATES), {}
for i = 1, #states, 2 do
  local id, lease = states[i], cjson.decode(states[i + 1])
  if #lease.replayed > 0 then
    reserved[#reserved + 1] = {id = id, lease = states[i + 1], sample = redis.call('HGET', SAMPLES, id)}
  else
    note_end(id, 'overtaken', lease.lease_id, memory_ms)
  end
end
empty_place(buffer, token, MARKED_HASHES)
copy_place(snapshot, buffer)
move_orders(snapshot, buffer)
redis.call('HDEL', REPLAY, 'snapshot', 'snapshot_ms', 'snapshot_version')
-- Continue the counters, so that no number is used for two chunks and no revision for two configurations.
local arrivals = math.max(now[2] or 0, redis.call('HGET', REPLAY, 'arrivals') or 0)
redis.call('HSET', REPLAY, 'revision', now[1], 'arrivals', string.format('%.0f', arrivals), 'restored', token)
local revision = redis.call('HINCRBY', REPLAY, 'revision', 1)
if settle == '1' then redis.call('HSET', REPLAY, 'unsettled', revision) end
local most_uses = tonumber(max_reuse) or math.huge
for _, reservation in ipairs(reserved) do hold_again(reservation, most_uses) end
redis.call('PUBLISH', RUN, 'restored')
return 1
