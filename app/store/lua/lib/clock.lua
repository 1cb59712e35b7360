-- clock: the run clock, included by the scripts that need it (not a command of its own).
--
-- It counts milliseconds in which the run was served. Each step is the change of Redis TIME, clamped to 0..3 s. While
-- something happens in a run, it is ticked once a second. So a longer gap means that Redis or all API processes were
-- away, or that the clock of Redis's host was set. Trainers and environments could not send signs of life then, so only
-- 3 s of the gap count. An outage does not end a lease of more than a few seconds, and does not age groups,
-- environments or histories. If ticks come late on a busy machine, the clock is slower than time. It is never faster.
--
-- A run in which nothing happens sleeps: no process ticks it (`tick`). Its clock advances with the service clock,
-- which follows the same rule and is advanced every second by every API process. The first step of the clock wakes the
-- run. Nearly every script can wake a run, so the keys for it are not in KEYS. They are made from the run's key.
--
-- `run_clock` in app/store/runs/clock.py reads the clock by the same rule.
local function clock_at(clock, last, now)
  return (tonumber(clock) or 0) + math.min(math.max(now - (tonumber(last) or now), 0), 3000)
end

local function advance_clock(run)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local fields = redis.call('HMGET', run, 'clock_ms', 'time_ms', 'asleep_ms')
  local clock
  if fields[3] then
    local prefix, name = string.match(run, '^(.*):{(.*)}:run$')
    local service = redis.call('HMGET', prefix .. ':service', 'clock_ms', 'time_ms')
    clock = fields[1] + math.max(clock_at(service[1], service[2], now) - fields[3], 0)
    redis.call('HDEL', run, 'asleep_ms')
    redis.call('ZADD', prefix .. ':runs', 'XX', 0, name)
  else
    clock = clock_at(fields[1], fields[2], now)
  end
  redis.call('HSET', run, 'clock_ms', clock, 'time_ms', now)
  return clock
end
