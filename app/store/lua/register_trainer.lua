#!lua flags=allow-oom
-- register_trainer: set the run's configuration, and return every batch a former trainer has not acknowledged.
--
-- KEYS[1] run           hash  configuration, epoch, step
-- KEYS[2] lease_states  hash  batch id -> 'state|worker|deliveries|step|relaxed'
-- ARGV[1] configuration, JSON   ARGV[2] starting step
--
-- Returns 1 if the configuration is new, 0 if it was in force already (then the step goes on).
-- Cost: O(leases).
--
-- include clock
advance_clock(KEYS[1])
local states = redis.call('HGETALL', KEYS[2])
for i = 1, #states, 2 do
  local rest = string.match(states[i + 1], '^%a+(|.*)$')
  redis.call('HSET', KEYS[2], states[i], 'returned' .. rest)
end
if redis.call('HGET', KEYS[1], 'config') == ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'config', ARGV[1], 'step', ARGV[2], 'started', 0)
-- A run that was forgotten may be made again. Its epochs go on from the time of day: none must mean two things.
redis.call('HSETNX', KEYS[1], 'epoch', redis.call('HGET', KEYS[1], 'time_ms'))
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HDEL', KEYS[1], 'conflict_since_ms', 'debts', 'last_batch_ms')
return 1
