-- run_limits: note the limits of a run, so that every process knows them.
--
-- Each change starts a new generation. `text` is JSON; '' if the run has no limits. Include `next_number` before this.
local function put_run_limits(limits, run, text)
  if (redis.call('HGET', limits, 'run:' .. run) or '') == text then return end
  if text == '' then
    redis.call('HDEL', limits, 'run:' .. run)
  else
    redis.call('HSET', limits, 'run:' .. run, text)
  end
  next_number(limits, 'generation')
end
