-- mark_payloads: mark the payloads of groups that are no longer needed (not a command of its own).
--
-- It needs bulk. The newest group is kept for /latest_example until a newer one comes.
local function forget_payloads(run, groups, unreferenced, ids)
  local latest, marks = redis.call('HGET', run, 'latest'), {}
  for _, group in ipairs(ids) do
    if latest ~= group then marks[#marks + 1], marks[#marks + 2] = -1, group end
  end
  write_list('HDEL', groups, ids)
  write_list('ZADD', unreferenced, marks)
end

-- A rewind cannot go before the latest step whose batch was delivered and is not kept.
local function note_unkept(run, step)
  local latest = redis.call('HGET', run, 'unkept_step')
  if not latest or tonumber(latest) < tonumber(step) then redis.call('HSET', run, 'unkept_step', step) end
end
