#!lua flags=allow-oom
-- rewind_run: hand out every batch after a step again, the leased and the kept ones, all or none.
--
-- It starts a new epoch, so that plans in flight are outdated.
--
-- Returns 1, or 0 if the run was rewound, a batch was taken, a lease changed, or other batches are kept after that
-- step; then nothing has changed.
-- Cost: O(n log m), n the batches and their groups, m the batches kept.
--
-- include rows
local RUN = KEYS[1]  -- hash: totals, step, version, `trained_batches`, what the last rewind was, epoch, `unkept_step`
local KEPT = KEYS[2]  -- hash: batch id -> JSON list of groups
local KEPT_STEPS = KEYS[3]  -- zset: batch id -> step
local LEASES = KEYS[4]  -- hash: batch id -> JSON list of groups
local LEASE_STATES = KEYS[5]  -- hash: batch id -> JSON of its lease
local KEPT_LEASES = KEYS[6]  -- hash: batch id -> policy version and JSON of its lease when it was delivered
local REPLAY = KEYS[7]  -- hash: the replay buffer's configuration, revision, `unsettled`: revision to check chunks for
local LEDGER = KEYS[8]  -- hash: 'state:environment' -> tokens
local step = ARGV[1]  -- step to go back to
local seen_step = ARGV[2]  -- step of the run as it was read
local seen_rewinds = ARGV[3]  -- rewinds of the run as they were read
local policy_version = ARGV[4]  -- policy version from now on
local request_id = ARGV[5]  -- of the rewind, by which a repetition is recognised
-- seen: JSON of the lease as it was read, '' if the batch is kept; new: its JSON from now on
local batches = rows(ARGV, 6, {'batch_id', 'seen', 'new'})
-- include clock
-- include next_number
-- include epoch
-- include sweeping
-- include change_policy_version
-- include replayed_references
-- include ledger

local now = redis.call('HMGET', RUN, 'step', 'rewinds', 'unkept_step')
if (now[1] or '0') ~= seen_step or (now[2] or '0') ~= seen_rewinds then return 0 end
if now[3] and tonumber(now[3]) > tonumber(step) then return 0 end
local kept = 0
for _, batch in ipairs(batches) do
  if batch.seen == '' then
    batch.manifest, kept = redis.call('HGET', KEPT, batch.batch_id), kept + 1
    if not batch.manifest then return 0 end
    batch.groups = cjson.decode(batch.manifest)
  elseif redis.call('HGET', LEASE_STATES, batch.batch_id) ~= batch.seen then
    return 0
  end
end
if redis.call('ZCOUNT', KEPT_STEPS, '(' .. step, '+inf') ~= kept then return 0 end
for _, batch in ipairs(batches) do
  redis.call('HSET', LEASE_STATES, batch.batch_id, batch.new)
  if batch.manifest then
    local groups, bytes, kept_bytes = split_replayed(batch.groups)
    count_tokens(groups, {leased = 1, trained = -1})
    redis.call('HINCRBY', RUN, 'kept_bytes', -kept_bytes)
    redis.call('HINCRBY', RUN, 'leased_groups', #groups)
    redis.call('HINCRBY', RUN, 'leased_bytes', bytes)
    redis.call('HINCRBY', RUN, 'delivered_groups', -#groups)
    redis.call('HSET', LEASES, batch.batch_id, batch.manifest)
    redis.call('HDEL', KEPT, batch.batch_id)
    redis.call('HDEL', KEPT_LEASES, batch.batch_id)
    redis.call('ZREM', KEPT_STEPS, batch.batch_id)
  end
end
redis.call('HDEL', RUN, 'trained_batches', 'version_cycle')
put_policy_version(RUN, REPLAY, policy_version)
redis.call('HINCRBY', RUN, 'rewinds', 1)
redis.call('HSET', RUN, 'rewound_by', request_id, 'rewound_to', step)
next_epoch(RUN)
redis.call('PUBLISH', RUN, 'rewound')
return 1
