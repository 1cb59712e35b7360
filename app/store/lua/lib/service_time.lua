-- service_time: the clock of Redis, for what belongs to no run (not a command of its own).
--
-- Return microseconds since 1970. What belongs to a run goes by the run clock (`clock`).
local function time_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
