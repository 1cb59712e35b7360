#!lua flags=allow-oom
-- drop_versions: drop waiting groups of a range of policy versions, such as the stale ones.
--
-- Only the entries of groups name their lanes, so KEYS cannot have the keys of lanes. They are made from the run's key.
--
-- Returns the number of groups that it found, or -1 if the run has changed since the decision; then nothing has
-- changed.
-- Cost: O(n log m), n the groups found, m the groups that wait.
--
-- include drop_keys
local epoch = ARGV[2]  -- that the decision is based on
local policy_version = ARGV[3]  -- that the decision is based on
local least = ARGV[4]  -- lowest version, as for ZRANGEBYSCORE
local greatest = ARGV[5]  -- highest version, as for ZRANGEBYSCORE
local limit = ARGV[6]  -- most groups to drop in one call
local group_ids = {}
-- include clock
-- include bulk
-- include mark_payloads
-- include group_entry
-- include group_names
-- include remember_ends
-- include lane_heads
-- include token_queues
-- include drop_waiting

local now = redis.call('HMGET', RUN, 'epoch', 'policy_version')
if (now[1] or '0') ~= epoch or (now[2] or '0') ~= policy_version then return -1 end
group_ids = redis.call('ZRANGEBYSCORE', VERSIONS, least, greatest, 'LIMIT', 0, limit)
if #group_ids == 0 then return 0 end
local leaving, prefix = read_leaving(read('HMGET', GROUPS, group_ids)), string.match(RUN, '^(.*:)run$')
local lanes, changed = {}, {}
for n in ipairs(group_ids) do
  local name = leaving.lane[n]
  if name then
    lanes[name] = lanes[name] or {}
    table.insert(lanes[name], n)
  end
end
for name, numbers in pairs(lanes) do
  local lane = {name = name, environment = string.match(name, '^[^:]+')}
  if redis.call('HEXISTS', BUFFERS, name) == 1 then
    numbers = drop_waiting('buffered', prefix .. 'buffer:' .. name, BUFFERS, lane, numbers, leaving)
  end
  changed[name] = prefix .. 'lane:' .. name
  drop_from('queued', changed[name], LANES, lane, numbers, leaving)
end
local first = redis.call('ZRANK', VERSIONS, group_ids[1])
redis.call('ZREMRANGEBYRANK', VERSIONS, first, first + #group_ids - 1)
forget_dropped(advance_clock(RUN))
order_lanes(LANE_HEADS, changed)
return #group_ids
