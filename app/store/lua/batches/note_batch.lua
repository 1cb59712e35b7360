-- note_batch: remember the end of a batch (not a command of its own).
--
-- The record of a group that has left names its batch by step and run clock, which take less memory than the batch id.
-- Both are needed: a trainer that registers again may set the step back, so several batches can have one step.
local function note_batch(id, ended_as, step, clock)
  local place, until_ms = string.format('step:%s:%.0f', step, clock), clock + remembered_ms
  redis.call('HSET', HISTORY, id, ended_as, place, id)
  redis.call('ZADD', ENDED, until_ms, id, until_ms, place)
end
