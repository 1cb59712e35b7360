#!lua
-- take_snapshot: copy the replay buffer, and delete the snapshots that the copy replaces.
--
-- KEYS[1] run  hash, and KEYS[2..23], the replay buffer's: replay_keys names them
-- KEYS[24] marked_hashes  set of tokens
-- KEYS[25..] hash, zset: places (replay_places), each with the name of its marked hash: the target, then those to drop
-- ARGV[1] revision and ARGV[2] policy version decided on   ARGV[3] name   ARGV[4] run clock, ms   ARGV[5..] tokens of
-- the marked hashes of those that go
--
-- Returns its `replay` hash, also if it was taken before, or nothing if the buffer changed; then nothing has changed.
-- Cost: O(m), m the chunks and fragments held. Redis serves no other request during that time.
--
-- include replay_keys
-- include replay_places
local TO, SIZE = 25, PARTS + 1
local taken = redis.call('HMGET', KEYS[25], 'revision', 'snapshot')
if taken[1] == string.format('%.0f', ARGV[1] + 1) and taken[2] == ARGV[3] then
  return redis.call('HGETALL', KEYS[25])
end
if redis.call('HGET', REPLAY, 'revision') ~= ARGV[1] then return {} end
if (redis.call('HGET', RUN, 'policy_version') or '0') ~= ARGV[2] then return {} end
for i = 5, #ARGV do
  local first = TO + SIZE * (i - 4)
  empty_place(first, first + PARTS, ARGV[i])
end
-- The revision identifies a snapshot. The buffer has this revision at no other time.
local revision = redis.call('HINCRBY', REPLAY, 'revision', 1)
if redis.call('HEXISTS', REPLAY, 'unsettled') == 1 then redis.call('HSET', REPLAY, 'unsettled', revision) end
copy_place(2, TO)
redis.call('HSET', KEYS[25], 'snapshot', ARGV[3], 'snapshot_ms', ARGV[4], 'snapshot_version', ARGV[2])
return redis.call('HGETALL', KEYS[25])
