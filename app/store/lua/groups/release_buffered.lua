#!lua flags=allow-oom
-- release_buffered: move buffered groups to their lanes in the queue, all or none, in their order of arrival.
--
-- Returns {1}, or {0, id of the first group that is not buffered}; then nothing has changed.
-- Cost: O(n log m), n the groups, m the groups in a lane.
--
-- include rows
local RUN = KEYS[1]  -- hash: totals
local GROUPS = KEYS[2]  -- hash: group id -> entry
local BUFFERS = KEYS[3]  -- hash: lane -> groups buffered
local LANES = KEYS[4]  -- hash: lane -> groups queued
local LANE_HEADS = KEYS[5]  -- zset: lane -> arrival of its oldest group
local places = rows(KEYS, 6, {'buffer', 'lane'})  -- zset: the buffer and the lane of each group
local released_groups = rows(ARGV, 1, {'group_id', 'lane'})
-- include group_entry
-- include lane_heads

for i, group in ipairs(released_groups) do
  if not redis.call('ZSCORE', places[i].buffer, group.group_id) then return {0, group.group_id} end
end
local changed = {}
for i, row in ipairs(released_groups) do
  local group, lane, buffer, queue = row.group_id, row.lane, places[i].buffer, places[i].lane
  local bytes = entry_word(redis.call('HGET', GROUPS, group), 'payload_bytes')
  changed[lane] = queue
  redis.call('ZADD', queue, redis.call('ZSCORE', buffer, group), group)
  redis.call('ZREM', buffer, group)
  if redis.call('HINCRBY', BUFFERS, lane, -1) == 0 then redis.call('HDEL', BUFFERS, lane) end
  redis.call('HINCRBY', LANES, lane, 1)
  redis.call('HINCRBY', RUN, 'buffered_groups', -1)
  redis.call('HINCRBY', RUN, 'buffered_bytes', -bytes)
  redis.call('HINCRBY', RUN, 'queued_groups', 1)
  redis.call('HINCRBY', RUN, 'queued_bytes', bytes)
end
order_lanes(LANE_HEADS, changed)
redis.call('PUBLISH', RUN, 'released')
return {1}
