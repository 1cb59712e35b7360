-- forget_payload: what happens when nothing needs a group any more (not a command of its own).
--
-- The newest group is kept for /latest_example until a newer one comes.
local function forget_payload(run, groups, unindexed, group)
  redis.call('HDEL', groups, group)
  if redis.call('HGET', run, 'latest') ~= group then redis.call('ZADD', unindexed, -1, group) end
end

-- No rewind goes before the latest step whose batch was delivered and is not kept.
local function note_unkept(run, step)
  local latest = redis.call('HGET', run, 'unkept_step')
  if not latest or tonumber(latest) < tonumber(step) then redis.call('HSET', run, 'unkept_step', step) end
end
