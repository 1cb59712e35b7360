-- clock: the run clock, included by the scripts that need it (not a command of its own).
--
-- Milliseconds of time in which the run was served. Each step is the change of Redis TIME, clamped to 0..3 s. Every API
-- process ticks each run once a second. So a longer gap means that Redis or all API processes were away, or that the
-- clock of Redis's host was set. Trainers and environments could not send signs of life then, so only 3 s of the gap
-- count. An outage does not end a lease of more than a few seconds, and does not age groups, environments or histories.
-- While no process ticks, the run clock stands still. If ticks come late on a busy machine, the clock is slower than
-- time, never faster.
--
-- `run_clock` in app/store/runs/view.py reads the clock by the same rule.
local function advance_clock(run)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local fields = redis.call('HMGET', run, 'clock_ms', 'time_ms')
  local clock = tonumber(fields[1]) or 0
  local last = tonumber(fields[2]) or now
  clock = clock + math.min(math.max(now - last, 0), 3000)
  redis.call('HSET', run, 'clock_ms', clock, 'time_ms', now)
  return clock
end
