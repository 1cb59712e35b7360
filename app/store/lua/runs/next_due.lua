-- next_due: find out when a run has to forget something (not a command of its own).
--
-- Return the run clock at which the run has to forget the first group, batch or sample.
local function next_due()
  local due_ms = tonumber(redis.call('ZRANGE', ENDED, 0, 0, 'WITHSCORES')[2] or math.huge)
  local left_ms = string.match(redis.call('LINDEX', LEFT, 0) or '', '^%d+')
  if not left_ms then return due_ms end
  return math.min(due_ms, left_ms + tonumber(redis.call('HGET', RUN, 'remembered_ms') or remembered_ms))
end
