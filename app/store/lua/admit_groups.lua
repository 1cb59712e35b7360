#!lua
-- admit_groups: index groups whose payloads are written, all or none.
--
-- KEYS[1] run        hash  run clock, totals, latest group
-- KEYS[2] recent     zset  group id -> run clock at admission, ms
-- KEYS[3] unindexed  zset  reserved payloads
-- KEYS[4] groups     hash  group id -> 'bytes checksum accepted_ms'
-- KEYS[5] seen       hash  environment id -> run clock at its last sign of life, ms
-- KEYS[6] lanes      hash  lane -> groups queued
-- KEYS[7] buffers    hash  lane -> groups buffered
-- KEYS[8..] per group  zset  the lane or buffer it goes to
-- ARGV per group: group id, lane, 'queued' or 'buffered', bytes, checksum, environment id or '' if it has no record
--
-- Returns {1} or {0, group id}: that group is neither reserved nor admitted; then nothing has changed.
-- A group that was admitted before is passed over; if it has left the store since, its rewritten payload is garbage.
-- Cost: O(n log m), n the groups, m the groups in a lane.
--
-- include clock
local FIELDS = 6
for i = 1, #ARGV, FIELDS do
  local reserved = redis.call('ZSCORE', KEYS[3], ARGV[i])
  if (not reserved or tonumber(reserved) < 0) and not redis.call('ZSCORE', KEYS[2], ARGV[i]) then
    return {0, ARGV[i]}
  end
end
local clock = advance_clock(KEYS[1])
for i = 1, #ARGV, FIELDS do
  local group, lane, place, bytes, checksum, environment = unpack(ARGV, i, i + FIELDS - 1)
  if redis.call('ZADD', KEYS[2], 'NX', clock, group) == 1 then
    local arrival = redis.call('HINCRBY', KEYS[1], 'arrivals', 1)
    redis.call('ZADD', KEYS[7 + (i - 1) / FIELDS + 1], arrival, group)
    redis.call('HINCRBY', place == 'queued' and KEYS[6] or KEYS[7], lane, 1)
    redis.call('HSET', KEYS[4], group, bytes .. ' ' .. checksum .. ' ' .. clock)
    redis.call('ZREM', KEYS[3], group)
    redis.call('HINCRBY', KEYS[1], 'accepted_groups', 1)
    redis.call('HINCRBY', KEYS[1], place .. '_groups', 1)
    redis.call('HINCRBY', KEYS[1], place .. '_bytes', bytes)
    local latest = redis.call('HGET', KEYS[1], 'latest')
    if latest and redis.call('HEXISTS', KEYS[4], latest) == 0 then
      redis.call('ZADD', KEYS[3], -1, latest)
    end
    redis.call('HSET', KEYS[1], 'latest', group)
    if environment ~= '' then redis.call('HSET', KEYS[5], environment, clock) end
  elseif redis.call('HEXISTS', KEYS[4], group) == 0 and redis.call('HGET', KEYS[1], 'latest') ~= group then
    redis.call('ZADD', KEYS[3], -1, group)
  end
end
return {1}
