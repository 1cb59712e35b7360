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
local RUN = KEYS[1]  -- hash: run clock, totals, latest group
local GROUPS = KEYS[2]  -- hash: group id -> entry
local LANES = KEYS[3]  -- hash: lane -> groups queued
local BUFFERS = KEYS[4]  -- hash: lane -> groups buffered
local VERSIONS = KEYS[5]  -- zset: group id -> policy version
local DROPPED = KEYS[6]  -- hash: 'reason:environment' -> groups
local UNREFERENCED = KEYS[7]  -- zset: payloads to delete
local KNOWN = KEYS[8]  -- hash: name of a group -> its id, and how it ended
local LEFT = KEYS[9]  -- list: 'clock_ms name name ...' of groups that have left
local LANE_HEADS = KEYS[10]  -- zset: lane -> arrival of its oldest group
local LEDGER = KEYS[11]  -- hash: 'state:environment' -> tokens
local TOKEN_QUEUES = KEYS[12]  -- hash: account -> 'groups bytes' queued, for each account that has a queue limit
local TOKEN_GROUPS = KEYS[13]  -- hash: id of a group of such an account -> 'account bytes'
local PAYLOADS = KEYS[14]  -- strings: what the keys of all payloads begin with
local reason = ARGV[1]
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
