#!lua flags=allow-oom
-- drop_groups: take queued or buffered groups out of the store for a stated reason.
--
-- KEYS[1] run        hash  run clock, totals, latest group
-- KEYS[2] groups     hash  group id -> entry
-- KEYS[3] lanes      hash  lane -> groups queued
-- KEYS[4] buffers    hash  lane -> groups buffered
-- KEYS[5] versions   zset  group id -> policy version
-- KEYS[6] dropped    hash  'reason:environment' -> groups
-- KEYS[7] unreferenced  zset  payloads to delete
-- KEYS[8] history    hash  group id -> what became of it
-- KEYS[9] ended      zset  group id -> run clock at which that is forgotten, ms
-- KEYS[10..] per group  zset its lane, zset its buffer
-- ARGV[1] reason   ARGV[2] ms history is kept   ARGV per group from 3 on: group id, lane, environment or '-'
--
-- A group without an index entry (which should not be) just leaves its lane, so that it is in nobody's way.
--
-- Returns the number dropped; a group that does not wait any more is passed over. A run that is not there stays so: 0.
-- Cost: O(n log m), n the groups, m the groups in a lane.
--
-- include clock
-- include bulk
-- include mark_payloads
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local ids = {}
for i = 3, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
local dropped, forgotten, clock = 0, {}, advance_clock(KEYS[1])
for i, entry in ipairs(read('HMGET', KEYS[2], ids)) do
  local group, lane, environment = unpack(ARGV, 3 * i, 3 * i + 2)
  local place, counts = 'queued', KEYS[3]
  local left = redis.call('ZREM', KEYS[8 + 2 * i], group)
  if left == 0 then
    place, counts = 'buffered', KEYS[4]
    left = redis.call('ZREM', KEYS[9 + 2 * i], group)
  end
  if left == 1 then
    if redis.call('HINCRBY', counts, lane, -1) == 0 then redis.call('HDEL', counts, lane) end
    if entry then
      increase(KEYS[1], place .. '_groups', -1)
      increase(KEYS[1], place .. '_bytes', -string.match(entry, '^%d+'))
      increase(KEYS[6], ARGV[1] .. ':' .. environment, 1)
      later('HSET', KEYS[8], group, string.format('%s - - %.0f %s', ARGV[1], clock, entry))
      later('ZADD', KEYS[9], clock + ARGV[2], group)
      later('ZREM', KEYS[5], group)
      forgotten[#forgotten + 1] = group
    end
    dropped = dropped + 1
  end
end
forget_payloads(KEYS[1], KEYS[2], KEYS[7], forgotten)
flush()
return dropped
