#!lua
-- admit_groups: index groups whose payloads are written, all or none.
--
-- KEYS[1] run        hash  run clock, epoch, totals, latest group
-- KEYS[2] recent     zset  group id -> run clock at admission, ms
-- KEYS[3] unindexed  zset  reserved payloads
-- KEYS[4] groups     hash  group id -> 'bytes checksum accepted_ms'
-- KEYS[5] seen       hash  environment id -> run clock at its last sign of life, ms
-- KEYS[6] lanes      hash  lane -> groups queued
-- KEYS[7] buffers    hash  lane -> groups buffered
-- KEYS[8..] per group  zset the lane or buffer it goes to, string its payload
-- ARGV[1] epoch the places were decided on, or '' if they depend on none
-- ARGV per group from 2 on: group id, lane, 'queued' or 'buffered', bytes, checksum, environment id or '' if it has none
--
-- Returns 1, or 0 if the epoch moved on or a payload is not there: then nothing has changed; decide and write again.
-- A group that was admitted before is passed over; if it has left the store since, its rewritten payload is garbage.
-- Cost: O(n log m), n the groups, m the groups in a lane.
--
-- include clock
local FIRST, FIELDS = 2, 6
if ARGV[1] ~= '' and (redis.call('HGET', KEYS[1], 'epoch') or '0') ~= ARGV[1] then return 0 end
for i = FIRST, #ARGV, FIELDS do
  local reserved = tonumber(redis.call('ZSCORE', KEYS[3], ARGV[i]) or -1)
  local written = redis.call('STRLEN', KEYS[9 + (i - FIRST) / FIELDS * 2]) == tonumber(ARGV[i + 3])
  if not (reserved >= 0 and written) and not redis.call('ZSCORE', KEYS[2], ARGV[i]) then return 0 end
end
local clock = advance_clock(KEYS[1])
for i = FIRST, #ARGV, FIELDS do
  local group, lane, place, bytes, checksum, environment = unpack(ARGV, i, i + FIELDS - 1)
  if redis.call('ZADD', KEYS[2], 'NX', clock, group) == 1 then
    local arrival = redis.call('HINCRBY', KEYS[1], 'arrivals', 1)
    redis.call('ZADD', KEYS[8 + (i - FIRST) / FIELDS * 2], arrival, group)
    redis.call('HINCRBY', place == 'queued' and KEYS[6] or KEYS[7], lane, 1)
    redis.call('HSET', KEYS[4], group, bytes .. ' ' .. checksum .. ' ' .. clock)
    redis.call('ZREM', KEYS[3], group)
    redis.call('HINCRBY', KEYS[1], 'accepted_groups', 1)
    redis.call('HINCRBY', KEYS[1], place .. '_groups', 1)
    redis.call('HINCRBY', KEYS[1], place .. '_bytes', bytes)
    local latest = redis.call('HGET', KEYS[1], 'latest')
    if latest and redis.call('HEXISTS', KEYS[4], latest) == 0 then redis.call('ZADD', KEYS[3], -1, latest) end
    redis.call('HSET', KEYS[1], 'latest', group)
    if environment ~= '' then redis.call('HSET', KEYS[5], environment, clock) end
  elseif redis.call('HEXISTS', KEYS[4], group) == 0 and redis.call('HGET', KEYS[1], 'latest') ~= group then
    redis.call('ZADD', KEYS[3], -1, group)
  end
end
return 1
