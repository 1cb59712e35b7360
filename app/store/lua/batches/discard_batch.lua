#!lua flags=allow-oom
-- discard_batch: end a lease whose batch nobody is to have; its groups are dropped for a stated reason.
--
-- KEYS[1] run           hash  run clock, totals, debts, latest group
-- KEYS[2] groups        hash  group id -> entry
-- KEYS[3] leases        hash  batch id -> JSON list of groups
-- KEYS[4] lease_states  hash  batch id -> JSON of its lease
-- KEYS[5] dropped       hash  'reason:environment' -> groups
-- KEYS[6] unreferenced     zset  payloads to delete
-- KEYS[7] history       hash  group or batch id -> what became of it
-- KEYS[8] ended         zset  group or batch id -> run clock at which that is forgotten, ms
-- KEYS[9] replayed      hash  group id -> batches that have it from the replay buffer
-- ARGV[1] batch id   ARGV[2] lease seen   ARGV[3] step   ARGV[4] reason   ARGV[5] ms history is kept
-- ARGV[6] JSON of the batch's changes of the debts
--
-- Returns 1, or 0 if the lease is in another state by now; then nothing has changed.
-- Cost: O(n log m), n the groups of the batch, m those whose history is kept.
--
-- include clock
-- include bulk
-- include mark_payloads
-- include replayed_references
-- include revert_debts
if redis.call('HGET', KEYS[4], ARGV[1]) ~= ARGV[2] then return 0 end
local clock = advance_clock(KEYS[1])
local batch = cjson.decode(redis.call('HGET', KEYS[3], ARGV[1]))
let_go_of_replayed(batch, KEYS[6], KEYS[9])
revert_debts(KEYS[1], ARGV[6])
local groups, bytes = parted(batch)
local ids = ids_of(groups)
for i, entry in ipairs(read('HMGET', KEYS[2], ids)) do
  local environment = groups[i].environment
  local owner = environment == cjson.null and '-' or string.format('%.0f', environment)
  increase(KEYS[5], ARGV[4] .. ':' .. owner, 1)
  later('HSET', KEYS[7], ids[i], string.format('%s %s %s %.0f %s', ARGV[4], ARGV[1], ARGV[3], clock, entry or ''))
  later('ZADD', KEYS[8], clock + ARGV[5], ids[i])
end
forget_payloads(KEYS[1], KEYS[2], KEYS[6], ids)
flush()
redis.call('HINCRBY', KEYS[1], 'leased_groups', -#groups)
redis.call('HINCRBY', KEYS[1], 'leased_bytes', -bytes)
redis.call('HSET', KEYS[7], ARGV[1], string.format('discarded - %s %.0f', ARGV[3], clock))
redis.call('ZADD', KEYS[8], clock + ARGV[5], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
return 1
