#!lua flags=allow-oom
-- tick: move the run clock on, note who is alive, forget what is no longer needed.
--
-- KEYS[1] run           hash  run clock
-- KEYS[2] workers       zset  API process -> run clock at its last tick, ms
-- KEYS[3] seen          hash  environment id -> run clock at its last sign of life, ms
-- KEYS[4] environments  hash  environment id -> JSON record
-- KEYS[5] recent        zset  group id -> run clock at admission, ms
-- ARGV[1] this API process   ARGV[2] ms a repeated submission is recognised for   ARGV[3..] environment ids heard of
--
-- Returns the run clock, ms.
-- Cost: O(environments heard of + groups forgotten); at most 10,000 are forgotten at once.
--
-- include clock
local clock = advance_clock(KEYS[1])
redis.call('ZADD', KEYS[2], clock, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', clock - 600000)
for i = 3, #ARGV do
  if redis.call('HEXISTS', KEYS[4], ARGV[i]) == 1 then redis.call('HSET', KEYS[3], ARGV[i], clock) end
end
local old = redis.call('ZCOUNT', KEYS[5], '-inf', clock - ARGV[2])
if old > 0 then redis.call('ZREMRANGEBYRANK', KEYS[5], 0, math.min(old, 10000) - 1) end
return clock
