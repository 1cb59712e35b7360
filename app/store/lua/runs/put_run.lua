#!lua flags=allow-oom
-- put_run: write a run's configuration and policy, if the run has not changed since the decision.
--
-- Returns 1, also if the run already has both and no other request made it, or 0 if the run has changed; then nothing
-- is written.
-- Cost: O(1).
--
local RUN = KEYS[1]  -- hash: configuration, policy, epoch, step, the request that made it
local LIMITS = KEYS[2]  -- hash: limits of runs
local epoch = ARGV[1]  -- that the decision is based on
local config = ARGV[2]  -- JSON
local policy = ARGV[3]  -- JSON
local step = ARGV[4]  -- the new step, or '' to keep the current one
local aging = ARGV[5]  -- 1 if groups grow too old by waiting, else 0
local remembered_ms = ARGV[6]  -- how long groups are remembered that have left
local made_by = ARGV[7]  -- the request that makes the run, or '' to change it
local name = ARGV[8]  -- of the run
local rate_limits = ARGV[9]  -- JSON, or '' for none
-- include clock
-- include next_number
-- include epoch
-- include run_limits
-- include sweeping

local now = redis.call('HMGET', RUN, 'epoch', 'config', 'policy', 'made_by')
local same = now[2] == config and now[3] == policy
if same and (made_by == '' or made_by == now[4]) then return 1 end
if (now[1] or '0') ~= epoch then return 0 end
advance_clock(RUN)
redis.call('HSET', RUN, 'config', config, 'policy', policy, 'aging', aging, 'remembered_ms', remembered_ms)
if made_by ~= '' then redis.call('HSET', RUN, 'made_by', made_by) end
if step ~= '' then redis.call('HSET', RUN, 'step', step) end
put_run_limits(LIMITS, name, rate_limits)
if now[3] and now[3] ~= policy then request_sweep(RUN) end
next_epoch(RUN)
redis.call('PUBLISH', RUN, 'changed')
return 1
