#!lua flags=allow-oom
-- discard_batch: end a lease and drop the groups of its batch for a stated reason.
--
-- Returns 1, or 0 if the lease has another state; then nothing has changed.
-- Cost: O(n log m), n the groups of the batch, m those whose end is remembered.
--
local RUN = KEYS[1]  -- hash: run clock, totals, debts, latest group
local GROUPS = KEYS[2]  -- hash: group id -> entry
local LEASES = KEYS[3]  -- hash: batch id -> JSON list of groups
local LEASE_STATES = KEYS[4]  -- hash: batch id -> JSON of its lease
local DROPPED = KEYS[5]  -- hash: 'reason:environment' -> groups
local UNREFERENCED = KEYS[6]  -- zset: payloads to delete
local HISTORY = KEYS[7]  -- hash: batch id -> how it ended; 'step:N:clock_ms' -> batch id
local ENDED = KEYS[8]  -- zset: those ids and steps by the run clock at which they are forgotten, ms
local REPLAYED = KEYS[9]  -- hash: group id -> batches that have it from the replay buffer
local KNOWN = KEYS[10]  -- hash: name of a group -> its id, and how it ended
local LEFT = KEYS[11]  -- list: 'clock_ms name name ...' of groups that have left
local LEDGER = KEYS[12]  -- hash: 'state:environment' -> tokens
local batch_id = ARGV[1]
local seen = ARGV[2]  -- JSON of the lease as it was read
local step = ARGV[3]
local reason = ARGV[4]  -- why the groups are dropped
local remembered_ms = ARGV[5]  -- how long the end of a batch is remembered, ms
local debt_changes = cjson.decode(ARGV[6])  -- JSON list of pairs: environment, change of its debt by the batch
-- include clock
-- include bulk
-- include mark_payloads
-- include replayed_references
-- include revert_debts
-- include group_entry
-- include group_names
-- include remember_ends
-- include note_batch
-- include ledger

if redis.call('HGET', LEASE_STATES, batch_id) ~= seen then return 0 end
local clock = advance_clock(RUN)
local batch = cjson.decode(redis.call('HGET', LEASES, batch_id))
release_replayed(batch, UNREFERENCED, REPLAYED)
revert_debts(RUN, debt_changes)
local groups, bytes = split_replayed(batch)
local ids = ids_of(groups)
for _, group in ipairs(groups) do
  local environment = group.environment
  local owner = environment == cjson.null and '-' or string.format('%.0f', environment)
  increase(DROPPED, reason .. ':' .. owner, 1)
end
remember_ends_of(ids, reason, step, clock)
forget_payloads(RUN, GROUPS, UNREFERENCED, ids)
flush()
count_tokens(groups, {leased = -1, [reason] = 1})
redis.call('HINCRBY', RUN, 'leased_groups', -#groups)
redis.call('HINCRBY', RUN, 'leased_bytes', -bytes)
note_batch(batch_id, string.format('discarded - %s %.0f', step, clock), step, clock)
redis.call('HDEL', LEASES, batch_id)
redis.call('HDEL', LEASE_STATES, batch_id)
return 1
