-- note_batch: remember the end of a batch (not a command of its own).
--
-- Groups are remembered with the step of their batch and the clock when they left, which takes less memory than its id.
-- Neither is enough: a trainer that registers again may set another step.
local function note_batch(id, ended_as, step, clock)
  local place, until_ms = string.format('step:%s:%.0f', step, clock), clock + history_ms
  redis.call('HSET', HISTORY, id, ended_as, place, id)
  redis.call('ZADD', ENDED, until_ms, id, until_ms, place)
end
