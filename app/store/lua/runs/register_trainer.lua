#!lua flags=allow-oom
-- register_trainer: set the run's configuration, and let every batch without acknowledgement be handed out again.
--
-- Returns 1 if the configuration is new, 0 if it was in force already (then the step continues), or -1 if the run or
-- a lease changed since it was read; then nothing has changed.
-- Cost: O(leases).
--
-- include rows
local RUN = KEYS[1]  -- hash: configuration, epoch, step
local LEASE_STATES = KEYS[2]  -- hash: batch id -> JSON of its lease
local epoch = ARGV[1]  -- as it was read
local config = ARGV[2]  -- JSON
local starting_step = ARGV[3]
local leases = rows(ARGV, 4, {'batch_id', 'seen', 'new'})  -- JSON of each lease as it was read, and from now on
-- include clock
-- include epoch

if redis.call('HGET', RUN, 'config') ~= config and (redis.call('HGET', RUN, 'epoch') or '0') ~= epoch then
  return -1
end
for _, lease in ipairs(leases) do
  local now = redis.call('HGET', LEASE_STATES, lease.batch_id)
  if now ~= lease.seen and now ~= lease.new then return -1 end
end
advance_clock(RUN)
for _, lease in ipairs(leases) do redis.call('HSET', LEASE_STATES, lease.batch_id, lease.new) end
redis.call('PUBLISH', RUN, 'registered')
if redis.call('HGET', RUN, 'config') == config then return 0 end
redis.call('HSET', RUN, 'config', config, 'step', starting_step, 'started', 0)
next_epoch(RUN)
redis.call('HDEL', RUN, 'conflict_since_ms', 'unfilled', 'undivided', 'debts', 'last_batch_ms', 'checkpoint',
  'checkpoint_version', 'unkept_step', 'trained_batches', 'trained_per_version', 'scarce')
return 1
