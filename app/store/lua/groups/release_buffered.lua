#!lua flags=allow-oom
-- release_buffered: move buffered groups to their lanes in the queue, all or none, in their order of arrival.
--
-- KEYS[1] run      hash  totals
-- KEYS[2] groups   hash  group id -> entry
-- KEYS[3] buffers  hash  lane -> groups buffered
-- KEYS[4] lanes    hash  lane -> groups queued
-- KEYS[5..] per group  zset buffer, zset lane
-- ARGV per group: group id, lane
--
-- Returns {1} or {0, group id} naming the first group that is not buffered any more; then nothing has changed.
-- Cost: O(n log m), n the groups, m the groups in a lane.
for i = 1, #ARGV, 2 do
  if not redis.call('ZSCORE', KEYS[4 + i], ARGV[i]) then return {0, ARGV[i]} end
end
for i = 1, #ARGV, 2 do
  local group, lane = ARGV[i], ARGV[i + 1]
  local buffer, queue = KEYS[4 + i], KEYS[5 + i]
  local bytes = string.match(redis.call('HGET', KEYS[2], group), '^%d+')
  redis.call('ZADD', queue, redis.call('ZSCORE', buffer, group), group)
  redis.call('ZREM', buffer, group)
  if redis.call('HINCRBY', KEYS[3], lane, -1) == 0 then redis.call('HDEL', KEYS[3], lane) end
  redis.call('HINCRBY', KEYS[4], lane, 1)
  redis.call('HINCRBY', KEYS[1], 'buffered_groups', -1)
  redis.call('HINCRBY', KEYS[1], 'buffered_bytes', -bytes)
  redis.call('HINCRBY', KEYS[1], 'queued_groups', 1)
  redis.call('HINCRBY', KEYS[1], 'queued_bytes', bytes)
end
redis.call('PUBLISH', KEYS[1], 'released')
return {1}
