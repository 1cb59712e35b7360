-- fall_asleep: let a run sleep until it has to forget something (not a command of its own).
--
-- From here on, its clock advances with the service clock (`clock`). The run may forget things late by the shortest
-- sleep. Otherwise a history of many groups would keep it awake.
local function fall_asleep(clock, due_ms)
  local wait = math.min(tonumber(longest_sleep_ms), due_ms - clock)
  local fields = redis.call('HMGET', SERVICE, 'clock_ms', 'time_ms')
  local service = clock_at(fields[1], fields[2], tonumber(redis.call('HGET', RUN, 'time_ms')))
  redis.call('HSET', RUN, 'asleep_ms', service)
  redis.call('ZADD', RUNS, 'XX', service + math.max(wait, tonumber(shortest_sleep_ms)), name)
end
