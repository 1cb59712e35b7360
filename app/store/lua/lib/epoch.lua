-- epoch: start a new epoch, so that plans and decisions in flight are outdated (not a command of its own).
--
-- No epoch is used twice, also if a forgotten run is made again. The first one tells it from earlier runs of its name.
-- Include `next_number` before this.
local function next_epoch(run)
  redis.call('HSETNX', run, 'first_epoch', next_number(run, 'epoch'))
end
