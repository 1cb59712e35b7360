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
local step = ARGV[2]  -- as it was read
local config = ARGV[3]  -- JSON
local starting_step = ARGV[4]  -- '' if the configuration stays, which another build may have encoded differently
local leases = rows(ARGV, 5, {'batch_id', 'seen', 'new'})  -- JSON of each lease as it was read, and from now on
-- include clock
-- include next_number
-- include epoch

local now = redis.call('HMGET', RUN, 'config', 'epoch', 'step')
if now[1] ~= config and ((now[2] or '0') ~= epoch or (now[3] or '0') ~= step) then return -1 end
for _, lease in ipairs(leases) do
  local state = redis.call('HGET', LEASE_STATES, lease.batch_id)
  if state ~= lease.seen and state ~= lease.new then return -1 end
end
advance_clock(RUN)
for _, lease in ipairs(leases) do redis.call('HSET', LEASE_STATES, lease.batch_id, lease.new) end
redis.call('PUBLISH', RUN, 'registered')
if now[1] == config or starting_step == '' then return 0 end
redis.call('HSET', RUN, 'config', config, 'step', starting_step, 'started', 0)
next_epoch(RUN)
redis.call('HDEL', RUN, 'conflict_since_ms', 'unfilled', 'undivided', 'debts', 'last_batch_ms', 'checkpoint',
  'checkpoint_version', 'unkept_step', 'trained_batches', 'trained_in_a_row',
  'batch_versions', 'version_cycle', 'scarce')
return 1
