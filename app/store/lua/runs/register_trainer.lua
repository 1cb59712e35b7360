#!lua flags=allow-oom
-- register_trainer: set the run's configuration, and return every batch a former trainer has not acknowledged.
--
-- KEYS[1] run           hash  configuration, epoch, step
-- KEYS[2] lease_states  hash  batch id -> JSON of its lease
-- ARGV[1] epoch seen   ARGV[2] configuration, JSON   ARGV[3] starting step   ARGV triples from 4 on: batch id, lease seen,
-- lease from now on
--
-- Returns 1 if the configuration is new, 0 if it was in force already (then the step goes on), or -1 if the run or
-- a lease moved on meanwhile; then nothing has changed.
-- Cost: O(leases).
--
-- include clock
-- include epoch
if redis.call('HGET', KEYS[1], 'config') ~= ARGV[2] and (redis.call('HGET', KEYS[1], 'epoch') or '0') ~= ARGV[1] then
  return -1
end
for i = 4, #ARGV, 3 do
  local lease = redis.call('HGET', KEYS[2], ARGV[i])
  if lease ~= ARGV[i + 1] and lease ~= ARGV[i + 2] then return -1 end
end
advance_clock(KEYS[1])
for i = 4, #ARGV, 3 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2]) end
redis.call('PUBLISH', KEYS[1], 'registered')
if redis.call('HGET', KEYS[1], 'config') == ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'config', ARGV[2], 'step', ARGV[3], 'started', 0)
next_epoch(KEYS[1])
redis.call('HDEL', KEYS[1], 'conflict_since_ms', 'unfilled', 'undivided', 'debts', 'last_batch_ms', 'checkpoint',
  'checkpoint_version', 'unkept_step', 'trained_batches', 'trained_per_version', 'scarce')
return 1
