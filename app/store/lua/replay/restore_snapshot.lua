#!lua
-- restore_snapshot: replace the replay buffer by a prepared snapshot. Samples of the snapshot are given back, and those
-- of the current buffer end. Batches keep their reservations of chunks that the snapshot has.
--
-- KEYS[1] run  hash, and KEYS[2..23], the replay buffer's: replay_keys names them
-- KEYS[24] marked_hashes  set of tokens
-- KEYS[25..] hash, zset: the snapshot's place (replay_places)   KEYS[44] hash, the marked hash of what is there now
-- ARGV[1] token of that marked hash, and of this restoration   ARGV[2] revision and ARGV[3] policy version decided on
-- ARGV[4] the revision the snapshot is known by   ARGV[5] most uses of a chunk at the snapshot, or ''   ARGV[6] ms it
-- is known how samples ended   ARGV[7] 1 if chunks must be looked over, else 0
--
-- Returns 1, also if it was restored before, or 0 if the buffer changed or the snapshot is gone; then nothing has
-- changed.
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
-- include replay_places
local now = redis.call('HMGET', REPLAY, 'revision', 'arrivals', 'restored')
if now[3] == ARGV[1] then return 1 end
if now[1] ~= ARGV[2] or redis.call('HGET', KEYS[25], 'revision') ~= ARGV[4] then return 0 end
if (redis.call('HGET', RUN, 'policy_version') or '0') ~= ARGV[3] then return 0 end
local states, reserved = redis.call('HGETALL', SAMPLE_STATES), {}
for i = 1, #states, 2 do
  local id, lease = states[i], cjson.decode(states[i + 1])
  if #lease.replayed > 0 then
    reserved[#reserved + 1] = {id = id, lease = states[i + 1], sample = redis.call('HGET', SAMPLES, id)}
  else
    note_end(id, 'overtaken', lease.lease_id, ARGV[6])
  end
end
empty_place(2, 44, ARGV[1])
copy_place(25, 2)
move_orders(25, 2)
redis.call('HDEL', REPLAY, 'snapshot', 'snapshot_ms', 'snapshot_version')
-- Continue the counters, so that no number is used for two chunks and no revision for two configurations.
local arrivals = math.max(now[2] or 0, redis.call('HGET', REPLAY, 'arrivals') or 0)
redis.call('HSET', REPLAY, 'revision', now[1], 'arrivals', string.format('%.0f', arrivals), 'restored', ARGV[1])
local revision = redis.call('HINCRBY', REPLAY, 'revision', 1)
if ARGV[7] == '1' then redis.call('HSET', REPLAY, 'unsettled', revision) end
local most_uses = tonumber(ARGV[5]) or math.huge
for _, sample in ipairs(redis.call('HVALS', SAMPLES)) do
  let_go_all(cjson.decode(sample).chunks, 'given_back', most_uses)
end
redis.call('UNLINK', SAMPLES, SAMPLE_STATES, REQUESTS)
for _, reservation in ipairs(reserved) do hold_again(reservation, most_uses) end
redis.call('PUBLISH', RUN, 'restored')
return 1
