-- epoch: what is decided on has changed, so that plans and decisions in flight are outdated (not a command of its own).
--
-- A run that was forgotten may be made again. Its epochs go on from the time of day: none must mean two things. So the
-- run clock must have been advanced before.
local function next_epoch(run)
  redis.call('HSETNX', run, 'epoch', redis.call('HGET', run, 'time_ms'))
  redis.call('HINCRBY', run, 'epoch', 1)
end
