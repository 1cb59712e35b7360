#!lua flags=allow-oom
-- requeue_batch: end a lease whose batch is given back, or can not be served as it was; its groups return to their lanes.
--
-- KEYS[1] run           hash  run clock, totals, debts
-- KEYS[2] lanes         hash  lane -> groups queued
-- KEYS[3] leases        hash  batch id -> JSON list of groups
-- KEYS[4] lease_states  hash  batch id -> JSON of its lease
-- KEYS[5] served        hash  environment id or '-' -> sequences handed out
-- KEYS[6] versions      zset  group id -> policy version
-- KEYS[7] history       hash  batch id -> what became of it
-- KEYS[8] ended         zset  batch id -> run clock at which that is forgotten, ms
-- KEYS[9] groups        hash  group id -> entry
-- KEYS[10] unreferenced    zset  payloads to delete
-- KEYS[11] replayed     hash  group id -> batches that have it from the replay buffer
-- KEYS[12..] per group  zset  its lane
-- ARGV[1] batch id   ARGV[2] lease seen   ARGV[3] lease id or '-'   ARGV[4] step   ARGV[5] ms history is kept
-- ARGV[6] JSON of the batch's changes of the debts
-- ARGV per group from the queue, from 7 on: group id, lane, arrival, bytes, environment or '-', size
--
-- Returns 1, or 0 if the lease is in another state by now; then nothing has changed.
-- Cost: O(n log m), n the groups of the batch, m the groups in a lane.
--
-- include clock
-- include replayed_references
-- include revert_debts
local FIRST, FIELDS = 7, 6
if redis.call('HGET', KEYS[4], ARGV[1]) ~= ARGV[2] then return 0 end
for i = FIRST, #ARGV, FIELDS do
  local group, lane, arrival, bytes, environment, size = unpack(ARGV, i, i + FIELDS - 1)
  local version = string.match(redis.call('HGET', KEYS[9], group) or '', ' (%d+) %S+$')
  redis.call('ZADD', KEYS[12 + (i - FIRST) / FIELDS], arrival, group)
  if version then redis.call('ZADD', KEYS[6], version, group) end
  redis.call('HINCRBY', KEYS[2], lane, 1)
  redis.call('HINCRBY', KEYS[5], environment, '-' .. size)
  redis.call('HINCRBY', KEYS[1], 'leased_groups', -1)
  redis.call('HINCRBY', KEYS[1], 'leased_bytes', '-' .. bytes)
  redis.call('HINCRBY', KEYS[1], 'queued_groups', 1)
  redis.call('HINCRBY', KEYS[1], 'queued_bytes', bytes)
end
local batch = cjson.decode(redis.call('HGET', KEYS[3], ARGV[1]))
let_go_of_replayed(batch, KEYS[10], KEYS[11])
revert_debts(KEYS[1], ARGV[6])
local clock = advance_clock(KEYS[1])
redis.call('HSET', KEYS[7], ARGV[1], string.format('given_back %s %s %.0f', ARGV[3], ARGV[4], clock))
redis.call('ZADD', KEYS[8], clock + ARGV[5], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
redis.call('PUBLISH', KEYS[1], 'given back')
return 1
