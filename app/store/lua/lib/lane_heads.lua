-- lane_heads: keep the lanes in the order of their oldest groups (not a command of its own).
--
local ordered = {}  -- lanes that `order_new` has given a place

-- Give a lane that was empty the place of its first group.
local function order_new(heads, lane, arrival)
  if not ordered[lane] then redis.call('ZADD', heads, arrival, lane) end
  ordered[lane] = true
end

-- Write the places of lanes whose groups have changed. `changed`: lane -> its key.
local function order_lanes(heads, changed)
  for lane, key in pairs(changed) do
    local oldest = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if oldest[2] then redis.call('ZADD', heads, oldest[2], lane) else redis.call('ZREM', heads, lane) end
  end
end
