#!lua flags=allow-oom
-- drop_groups: take queued or buffered groups out of the store for a stated reason.
--
-- A group without an index entry (which should not happen) only leaves its lane, so that it does not block others.
--
-- Returns the number dropped. Groups that no longer wait are skipped. If there is no such run, none is made: 0.
-- Cost: O(n log m), n the groups, m the groups in a lane.
--
-- include rows
local RUN = KEYS[1]  -- hash: run clock, totals, latest group
local GROUPS = KEYS[2]  -- hash: group id -> entry
local LANES = KEYS[3]  -- hash: lane -> groups queued
local BUFFERS = KEYS[4]  -- hash: lane -> groups buffered
local VERSIONS = KEYS[5]  -- zset: group id -> policy version
local DROPPED = KEYS[6]  -- hash: 'reason:environment' -> groups
local UNREFERENCED = KEYS[7]  -- zset: payloads to delete
local HISTORY = KEYS[8]  -- hash: group id -> what became of it
local ENDED = KEYS[9]  -- zset: group id -> run clock at which that is forgotten, ms
local reason = ARGV[1]
local history_ms = ARGV[2]  -- how long history is kept
local places = rows(KEYS, 10, {'lane', 'buffer'})  -- zset: the lane and the buffer of each group
local dropped_groups = rows(ARGV, 3, {'group_id', 'lane', 'environment'})  -- environment may be '-'
-- include clock
-- include bulk
-- include mark_payloads

if redis.call('EXISTS', RUN) == 0 then return 0 end
local ids = {}
for i, group in ipairs(dropped_groups) do ids[i] = group.group_id end
local dropped, forgotten, clock = 0, {}, advance_clock(RUN)
for i, entry in ipairs(read('HMGET', GROUPS, ids)) do
  local group, lane, environment = dropped_groups[i].group_id, dropped_groups[i].lane, dropped_groups[i].environment
  local place, counts = 'queued', LANES
  local left = redis.call('ZREM', places[i].lane, group)
  if left == 0 then
    place, counts = 'buffered', BUFFERS
    left = redis.call('ZREM', places[i].buffer, group)
  end
  if left == 1 then
    if redis.call('HINCRBY', counts, lane, -1) == 0 then redis.call('HDEL', counts, lane) end
    if entry then
      increase(RUN, place .. '_groups', -1)
      increase(RUN, place .. '_bytes', -string.match(entry, '^%d+'))
      increase(DROPPED, reason .. ':' .. environment, 1)
      later('HSET', HISTORY, group, string.format('%s - - %.0f %s', reason, clock, entry))
      later('ZADD', ENDED, clock + history_ms, group)
      later('ZREM', VERSIONS, group)
      forgotten[#forgotten + 1] = group
    end
    dropped = dropped + 1
  end
end
forget_payloads(RUN, GROUPS, UNREFERENCED, forgotten)
flush()
return dropped
