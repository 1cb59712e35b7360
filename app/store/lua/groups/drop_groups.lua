#!lua flags=allow-oom
-- drop_groups: take queued or buffered groups out of the store for a stated reason.
--
-- A group without an index entry should not exist. If there is one, it leaves its lane, so that it does not block
-- others.
--
-- Returns the number dropped. It skips groups that do not wait any more. 0 if there is no such run.
-- Cost: O(n log m), n the groups, m the groups in a lane.
--
-- include rows
-- include drop_keys
-- JSON list of {name, environment, groups} of each lane: environment may be '-'; groups: how many
local dropped_lanes = cjson.decode(ARGV[2])
local places = rows(KEYS, 15, {'lane', 'buffer'})  -- zset: queued and buffered groups of each lane
local group_ids = rest(ARGV, 3)  -- in the order of the lanes, without repetitions
-- include clock
-- include bulk
-- include mark_payloads
-- include group_entry
-- include group_names
-- include remember_ends
-- include lane_heads
-- include token_queues
-- include drop_waiting

if redis.call('EXISTS', RUN) == 0 then return 0 end
local clock, first, changed = advance_clock(RUN), 1, {}
local leaving = read_leaving(read('HMGET', GROUPS, group_ids))
for n, lane in ipairs(dropped_lanes) do
  local numbers = {}
  for number = first, first + lane.groups - 1 do numbers[#numbers + 1] = number end
  first = first + lane.groups
  changed[lane.name] = places[n].lane
  local others = drop_waiting('queued', places[n].lane, LANES, lane, numbers, leaving)
  drop_waiting('buffered', places[n].buffer, BUFFERS, lane, others, leaving)
end
write_list('ZREM', VERSIONS, forgotten)
forget_dropped(clock)
order_lanes(LANE_HEADS, changed)
return dropped
