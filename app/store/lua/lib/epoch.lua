-- epoch: start a new epoch, so that plans and decisions in flight are outdated (not a command of its own).
--
-- A forgotten run may be made again. Its epochs start from the time of day, so that no epoch is used twice. The first
-- one tells it from earlier runs of its name. Advance the run clock first: this reads its time.
local function next_epoch(run)
  redis.call('HSETNX', run, 'epoch', redis.call('HGET', run, 'time_ms'))
  redis.call('HSETNX', run, 'first_epoch', redis.call('HINCRBY', run, 'epoch', 1))
end
