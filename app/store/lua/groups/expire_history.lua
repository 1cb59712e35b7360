#!lua flags=allow-oom
-- expire_history: forget what senders called their groups, and what became of groups and batches, once that is long ago.
--
-- KEYS[1] run              hash  run clock
-- KEYS[2] groups           hash  group id -> entry
-- KEYS[3] given_ids        hash  given id -> 'group_id outcome checksum'
-- KEYS[4] given_ids_until  zset  given id -> run clock at which it is forgotten, ms
-- KEYS[5] history          hash  group or batch id -> what became of it
-- KEYS[6] ended            zset  group or batch id -> run clock at which that is forgotten, ms
-- ARGV[1] most of each kind at once   ARGV[2] ms until another look at the name of a group that is still held
--
-- Returns the number forgotten.
-- Cost: O(n log m), n those whose time has come, m those remembered.
local clock = tonumber(redis.call('HGET', KEYS[1], 'clock_ms') or 0)
local forgotten = 0
for _, given in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', clock, 'LIMIT', 0, ARGV[1])) do
  local group = string.match(redis.call('HGET', KEYS[3], given) or '', '^%S+')
  if group and redis.call('HEXISTS', KEYS[2], group) == 1 then
    redis.call('ZADD', KEYS[4], clock + ARGV[2], given)
  else
    redis.call('HDEL', KEYS[3], given)
    redis.call('ZREM', KEYS[4], given)
    forgotten = forgotten + 1
  end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', clock, 'LIMIT', 0, ARGV[1])) do
  redis.call('HDEL', KEYS[5], id)
  redis.call('ZREM', KEYS[6], id)
  forgotten = forgotten + 1
end
return forgotten
