-- change_policy_version: put another version in force (not a command of its own).
--
-- No order shows which chunks are partly of later versions. So all chunks must be checked after the version goes down.
-- Waiting groups are always checked (`request_sweep`). If the process that checks dies, others continue.
local function put_policy_version(run, replay, version)
  local before = tonumber(redis.call('HGET', run, 'policy_version') or 0)
  redis.call('HSET', run, 'policy_version', version)
  request_sweep(run)
  if tonumber(version) < before and redis.call('HEXISTS', replay, 'config') == 1 then
    redis.call('HSET', replay, 'unsettled', redis.call('HINCRBY', replay, 'revision', 1))
  end
end
