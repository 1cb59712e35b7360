-- keep_newest: write a field of a hash that keeps only its newest fields (not a command of its own).
--
-- The list `order` has the fields, the oldest first. A field that is written again keeps its place.
local function keep_newest(values, order, name, value, most)
  if redis.call('HSET', values, name, value) == 0 then return end
  redis.call('RPUSH', order, name)
  while redis.call('LLEN', order) > tonumber(most) do redis.call('HDEL', values, redis.call('LPOP', order)) end
end
