-- mark_payloads: mark the payloads of groups that are no longer needed (not a command of its own).
--
-- Include `bulk` first. The newest group is kept for /latest_example until a newer one comes.
local function forget_payloads(run, groups, unreferenced, ids)
  local latest, marks = redis.call('HGET', run, 'latest'), {}
  for _, group in ipairs(ids) do
    if latest ~= group then marks[#marks + 1], marks[#marks + 2] = -1, group end
  end
  write_list('HDEL', groups, ids)
  write_list('ZADD', unreferenced, marks)
end

-- Note the step of a delivered batch that is not kept. A rewind cannot go back before the latest such step.
local function note_unkept(run, step)
  local latest = redis.call('HGET', run, 'unkept_step')
  if not latest or tonumber(latest) < tonumber(step) then redis.call('HSET', run, 'unkept_step', step) end
end
