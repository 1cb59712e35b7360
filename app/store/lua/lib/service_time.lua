-- service_time: read the clock of Redis, for data that belongs to no run (not a command of its own).
--
-- Return microseconds since 1970. Data of a run uses the run clock (`clock`) instead.
local function time_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
