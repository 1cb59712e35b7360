-- forget_oldest: remove the oldest members of a sorted set, at most 1000 in a call (not a command of its own).
--
-- It removes members with scores up to `oldest`, or without such members those in excess of `most`. Returns them.
local function forget_oldest(known, oldest, most)
  local old = redis.call('ZRANGEBYSCORE', known, '-inf', oldest, 'LIMIT', 0, 1000)
  local excess = redis.call('ZCARD', known) - most
  if #old == 0 and excess > 0 then old = redis.call('ZRANGE', known, 0, math.min(excess, 1000) - 1) end
  if #old > 0 then redis.call('ZREM', known, unpack(old)) end
  return old
end
