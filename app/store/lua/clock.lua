-- clock: the run clock, included by the scripts that need it (not a command of its own).
--
-- Milliseconds of time that passed while the run was in use: each step is what Redis TIME moved, clamped to
-- 0..30 s, so that neither a clock set back or forward nor an outage ages leases and environments at once.
local function advance_clock(run)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local fields = redis.call('HMGET', run, 'clock_ms', 'time_ms')
  local clock = tonumber(fields[1]) or 0
  local last = tonumber(fields[2]) or now
  clock = clock + math.min(math.max(now - last, 0), 30000)
  redis.call('HSET', run, 'clock_ms', clock, 'time_ms', now)
  return clock
end
