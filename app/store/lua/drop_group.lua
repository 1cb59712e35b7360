#!lua flags=allow-oom
-- drop_group: take one queued group out of the store for a stated reason.
--
-- KEYS[1] run        hash  totals
-- KEYS[2] groups     hash  group id -> 'bytes checksum accepted_ms'
-- KEYS[3] lanes      hash  lane -> groups queued
-- KEYS[4] lane       zset  the group's lane
-- KEYS[5] dropped    hash  reason -> groups
-- KEYS[6] unindexed  zset  payloads to remove
-- ARGV[1] group id   ARGV[2] lane   ARGV[3] reason
--
-- A group without an index entry (which should not be) just leaves its lane, so that it is in nobody's way.
--
-- Returns 1, or 0 if the group was not queued any more.
-- Cost: O(log m), m the groups in the lane.
if redis.call('ZREM', KEYS[4], ARGV[1]) == 0 then return 0 end
if redis.call('HINCRBY', KEYS[3], ARGV[2], -1) == 0 then redis.call('HDEL', KEYS[3], ARGV[2]) end
local entry = redis.call('HGET', KEYS[2], ARGV[1])
if not entry then return 1 end
local bytes = string.match(entry, '^%d+')
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HINCRBY', KEYS[1], 'queued_groups', -1)
redis.call('HINCRBY', KEYS[1], 'queued_bytes', -bytes)
redis.call('HINCRBY', KEYS[5], ARGV[3], 1)
redis.call('ZADD', KEYS[6], -1, ARGV[1])
return 1
