#!lua flags=allow-oom
-- count_use: count what a request uses against limits of rates, all or none.
--
-- Returns the time, and how long the request must wait for each limit, microseconds. If it must wait, nothing counts.
-- Cost: O(n), n the limits.
--
-- include rows
-- include service_time
local burst_us = ARGV[1]  -- what may be used at once
local COSTS_US = rest(ARGV, 2)  -- what the request costs against each limit
local ARRIVALS = rest(KEYS, 1)  -- string: when all that was sent would have come in at exactly the limit, us since 1970

local now = time_us()
local reply, starts, waits = {now}, {}, false
for i, key in ipairs(ARRIVALS) do
  starts[i] = math.max(tonumber(redis.call('GET', key) or '0'), now)
  COSTS_US[i] = tonumber(COSTS_US[i])
  local wait = math.max(0, starts[i] - now + math.min(COSTS_US[i], burst_us) - burst_us)
  waits = waits or wait > 0
  reply[i + 1] = wait
end
if waits then return reply end
for i, key in ipairs(ARRIVALS) do
  local arrival = starts[i] + COSTS_US[i]
  if arrival > now then
    local left_ms = math.ceil((arrival - now) / 1000)
    redis.call('SET', key, string.format('%.0f', arrival), 'PX', string.format('%.0f', left_ms))
  end
end
return reply
