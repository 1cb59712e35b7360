#!lua flags=allow-oom
-- count_use: count a use against all of its rate limits, or against none. Repeated, it counts again: a limit of rates
-- need not be that exact. What has happened already counts in any case.
--
-- An arrival that was written in the future does not count: the clock of Redis has gone back since.
--
-- Returns the time, then how long the use must wait for each limit, us. If it must wait, nothing is counted.
-- Cost: O(n), n the limits.
--
-- include rows
-- include service_time
local burst_us = ARGV[1]  -- how much use a limit allows at once, us
local happened = ARGV[2] == '1'  -- whether nothing can make the use wait
local COSTS_US = rest(ARGV, 3)  -- what the use costs against each limit, us
-- string: 'arrival written', us since 1970: theoretical arrival time of the next request (GCRA), and the time when that
-- was written. Earlier builds wrote the arrival alone
local ARRIVALS = rest(KEYS, 1)

local function arrival_of(key, now)
  local arrival, written = string.match(redis.call('GET', key) or '0', '^(%d+) ?(%d*)$')
  return (tonumber(written) or 0) > now and 0 or tonumber(arrival)
end

local now = time_us()
local reply, starts, waits = {now}, {}, false
for i, key in ipairs(ARRIVALS) do
  starts[i] = math.max(arrival_of(key, now), now)
  COSTS_US[i] = tonumber(COSTS_US[i])
  local wait = happened and 0 or math.max(0, starts[i] - now + math.min(COSTS_US[i], burst_us) - burst_us)
  waits = waits or wait > 0
  reply[i + 1] = wait
end
if waits then return reply end
for i, key in ipairs(ARRIVALS) do
  local arrival = starts[i] + COSTS_US[i]
  if arrival > now then
    local left_ms = math.ceil((arrival - now) / 1000)
    redis.call('SET', key, string.format('%.0f %.0f', arrival, now), 'PX', string.format('%.0f', left_ms))
  end
end
return reply
