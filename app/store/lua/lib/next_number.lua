-- next_number: count a field up to a number that it never had before (not a command of its own).
--
-- A process that knows the number must notice any change. Redis may lose its last writes in a crash or a failover, and
-- then the number goes back. So it is at least the time in milliseconds: after a loss, the time is later.
local function next_number(key, field)
  local time = redis.call('TIME')
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  local number = math.max((tonumber(redis.call('HGET', key, field)) or 0) + 1, now_ms)
  redis.call('HSET', key, field, number)
  return number
end
