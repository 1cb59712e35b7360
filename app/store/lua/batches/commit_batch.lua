#!lua flags=allow-oom
-- commit_batch: move the planned groups from their lanes into a new lease, all or none.
--
-- Returns 1, also if an earlier call committed the batch and its lease is unchanged. 0 if the run has changed since the
-- plan; then nothing has changed.
-- Cost: O(n log m), n the groups of the batch, m the groups in a lane.
--
-- include rows
local RUN = KEYS[1]  -- hash: configuration epoch, policy version, step, totals
local GROUPS = KEYS[2]  -- hash: group id -> entry
local LANES = KEYS[3]  -- hash: lane -> groups queued
local SERVED = KEYS[4]  -- hash: environment id or '-' -> sequences handed out
local LEASES = KEYS[5]  -- hash: batch id -> JSON list of groups
local LEASE_STATES = KEYS[6]  -- hash: batch id -> JSON of its lease
local VERSIONS = KEYS[7]  -- zset: group id -> policy version
-- hash: sample id or batch id -> JSON of the chunks that it got from the replay buffer
local REPLAY_SAMPLES = KEYS[8]
local REPLAYED = KEYS[9]  -- hash: group id -> batches that have it from the replay buffer
local LANE_HEADS = KEYS[10]  -- zset: lane -> arrival of its oldest group
local LEDGER = KEYS[11]  -- hash: 'state:environment' -> tokens
local BATCHES = KEYS[12]  -- hash: batch id -> JSON of what it consisted of, for the latest batches
local BATCH_ORDER = KEYS[13]  -- list: the same batches, the oldest first
local TOKEN_QUEUES = KEYS[14]  -- hash: account -> 'groups bytes' queued, for each account that has a queue limit
local TOKEN_GROUPS = KEYS[15]  -- hash: id of a group of such an account -> 'account bytes'
local batch_id = ARGV[1]
local lease = ARGV[2]  -- JSON
local manifest = ARGV[3]  -- JSON list of groups
local epoch = ARGV[4]  -- that the plan is based on
local step = ARGV[5]  -- that the plan is based on
local policy_version = ARGV[6]  -- that the plan is based on
local debts = ARGV[7]  -- JSON of the debts after this batch
local clock_ms = ARGV[8]  -- run clock at planning
local relaxed = ARGV[9]  -- 1 or 0
local balance = ARGV[10]  -- JSON of how evenly batches were sharded, this one included; '' if it is not sharded
local delays = ARGV[11]  -- JSON of how often groups were passed over; '' if unchanged
local replayed_ids = cjson.decode(ARGV[12])  -- JSON list: ids of the groups from the replay buffer
local scarce = ARGV[13]  -- JSON of the environments that batches wait for
local record = ARGV[14]  -- JSON of what the batch consists of
local most_records = ARGV[15]  -- most batches that have a record
-- JSON of the debts that the plan is based on. Lua and Python write them in different words
local seen_debts = cjson.decode(ARGV[16])
local LANE_KEYS = rest(KEYS, 16)  -- zset: the lane of each group
-- environment may be '-'
local queued_groups = rows(ARGV, 17, {'group_id', 'lane', 'bytes', 'environment', 'size', 'tokens'})
-- include bulk
-- include clock
-- include lane_heads
-- include ledger
-- include find_planned_groups
-- include keep_newest
-- include token_queues

-- Return whether the debts are those of the plan. A batch that ended without training has changed them otherwise.
local function same_debts(text)
  local now = cjson.decode(text or '{}')
  for environment, owed in pairs(now) do
    if seen_debts[environment] ~= owed then return false end
  end
  for environment in pairs(seen_debts) do
    if not now[environment] then return false end
  end
  return true
end

local known = redis.call('HGET', LEASE_STATES, batch_id)
if known then return known == lease and 1 or 0 end
local now = redis.call('HMGET', RUN, 'epoch', 'step', 'policy_version', 'debts')
if (now[1] or '0') ~= epoch or (now[2] or '0') ~= step or (now[3] or '0') ~= policy_version then return 0 end
if not same_debts(now[4]) then return 0 end
local left, changed, planned, bytes = {}, {}, find_planned_groups()
if not planned then return 0 end
local reserved = redis.call('HGET', REPLAY_SAMPLES, batch_id)
if #replayed_ids > 0 and not (reserved and #cjson.decode(reserved).chunks == #replayed_ids) then return 0 end
for _, group in ipairs(replayed_ids) do redis.call('HINCRBY', REPLAYED, group, 1) end
for i, group in ipairs(queued_groups) do
  later('ZREM', LANE_KEYS[i], group.group_id)
  later('ZREM', VERSIONS, group.group_id)
  left[group.lane], changed[group.lane] = (left[group.lane] or 0) + 1, LANE_KEYS[i]
  increase(SERVED, group.environment, group.size)
end
for lane, count in pairs(left) do
  if redis.call('HINCRBY', LANES, lane, -count) == 0 then redis.call('HDEL', LANES, lane) end
end
flush()
leave_token_queues(planned)
count_tokens(queued_groups, {leased = 1})
order_lanes(LANE_HEADS, changed)
advance_clock(RUN)
redis.call('HINCRBY', RUN, 'step', 1)
redis.call('HINCRBY', RUN, 'queued_groups', -#planned)
redis.call('HINCRBY', RUN, 'queued_bytes', -bytes)
redis.call('HINCRBY', RUN, 'leased_groups', #planned)
redis.call('HINCRBY', RUN, 'leased_bytes', bytes)
redis.call('HINCRBY', RUN, 'relaxed_batches', relaxed)
redis.call('HSET', RUN, 'debts', debts, 'last_batch_ms', clock_ms, 'scarce', scarce)
redis.call('HSET', LEASES, batch_id, manifest)
redis.call('HSET', LEASE_STATES, batch_id, lease)
keep_newest(BATCHES, BATCH_ORDER, batch_id, record, most_records)
if delays ~= '' then redis.call('HSET', RUN, 'delays', delays) end
if balance ~= '' then
  redis.call('HSET', RUN, 'balance', balance)
  redis.call('PUBLISH', RUN, 'divided')
end
return 1
