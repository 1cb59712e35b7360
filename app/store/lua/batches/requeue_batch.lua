#!lua flags=allow-oom
-- requeue_batch: end a lease and return its groups to their lanes, if its batch is given back or cannot be served.
--
-- Returns 1, or 0 if the lease has another state; then nothing has changed.
-- Cost: O(n log m), n the groups of the batch, m the groups in a lane.
--
-- include rows
local RUN = KEYS[1]  -- hash: run clock, totals, debts
local LANES = KEYS[2]  -- hash: lane -> groups queued
local LEASES = KEYS[3]  -- hash: batch id -> JSON list of groups
local LEASE_STATES = KEYS[4]  -- hash: batch id -> JSON of its lease
local SERVED = KEYS[5]  -- hash: environment id or '-' -> sequences handed out
local VERSIONS = KEYS[6]  -- zset: group id -> policy version
local HISTORY = KEYS[7]  -- hash: batch id -> how it ended
local ENDED = KEYS[8]  -- zset: batch id -> run clock at which its end is forgotten, ms
local GROUPS = KEYS[9]  -- hash: group id -> entry
local UNREFERENCED = KEYS[10]  -- zset: payloads to delete
local REPLAYED = KEYS[11]  -- hash: group id -> batches that have it from the replay buffer
local batch_id = ARGV[1]
local seen = ARGV[2]  -- JSON of the lease as it was read
local lease_id = ARGV[3]  -- or '-'
local step = ARGV[4]
local remembered_ms = ARGV[5]  -- how long the end of a batch is remembered, ms
local debt_changes = cjson.decode(ARGV[6])  -- JSON list of pairs: environment, change of its debt by the batch
local LANE_HEADS = KEYS[12]  -- zset: lane -> arrival of its oldest group
local LEDGER = KEYS[13]  -- hash: 'state:environment' -> tokens
local LANE_KEYS = rest(KEYS, 14)  -- zset: the lane of each group
-- the groups of the batch that came from the queue; environment may be '-'
local queued_groups = rows(ARGV, 7, {'group_id', 'lane', 'arrival', 'bytes', 'environment', 'size', 'tokens'})
-- include clock
-- include replayed_references
-- include revert_debts
-- include group_entry
-- include lane_heads
-- include ledger

if redis.call('HGET', LEASE_STATES, batch_id) ~= seen then return 0 end
local changed = {}
for i, group in ipairs(queued_groups) do
  changed[group.lane] = LANE_KEYS[i]
  local entry = redis.call('HGET', GROUPS, group.group_id)
  local version = entry and entry_word(entry, 'policy_version')
  redis.call('ZADD', LANE_KEYS[i], group.arrival, group.group_id)
  if version then redis.call('ZADD', VERSIONS, version, group.group_id) end
  redis.call('HINCRBY', LANES, group.lane, 1)
  redis.call('HINCRBY', SERVED, group.environment, '-' .. group.size)
  redis.call('HINCRBY', RUN, 'leased_groups', -1)
  redis.call('HINCRBY', RUN, 'leased_bytes', '-' .. group.bytes)
  redis.call('HINCRBY', RUN, 'queued_groups', 1)
  redis.call('HINCRBY', RUN, 'queued_bytes', group.bytes)
end
order_lanes(LANE_HEADS, changed)
count_tokens(queued_groups, {leased = -1})
local batch = cjson.decode(redis.call('HGET', LEASES, batch_id))
release_replayed(batch, UNREFERENCED, REPLAYED)
revert_debts(RUN, debt_changes)
local clock = advance_clock(RUN)
redis.call('HSET', HISTORY, batch_id, string.format('given_back %s %s %.0f', lease_id, step, clock))
redis.call('ZADD', ENDED, clock + remembered_ms, batch_id)
redis.call('HDEL', LEASES, batch_id)
redis.call('HDEL', LEASE_STATES, batch_id)
redis.call('PUBLISH', RUN, 'given back')
return 1
