#!lua flags=allow-oom
-- acknowledge_batches: end leases of batches that were trained on, or reached their trainer, and deliver their groups.
--
-- Returns {list of the batches ended, groups that entered the replay buffer, groups that came from there}. It skips
-- leases whose state has changed. {{}, 0, 0} if there is no such run, or if the epoch has changed; then nothing has
-- changed.
-- Cost: O(n log m), n the groups of the batches, m those whose end is remembered.
--
-- include rows
local RUN = KEYS[1]  -- hash: run clock, policy version, totals, latest group
local GROUPS = KEYS[2]  -- hash: group id -> entry
local LEASES = KEYS[3]  -- hash: batch id -> JSON list of groups
local LEASE_STATES = KEYS[4]  -- hash: batch id -> JSON of its lease
local UNREFERENCED = KEYS[5]  -- zset: payloads to delete
local HISTORY = KEYS[6]  -- hash: batch id -> how it ended; 'step:N:clock_ms' -> batch id
local ENDED = KEYS[7]  -- zset: those ids and steps by the run clock at which they are forgotten, ms
local KEPT = KEYS[8]  -- hash: batch id -> JSON list of groups
local KEPT_STEPS = KEYS[9]  -- zset: batch id -> step
local KEPT_LEASES = KEYS[10]  -- hash: batch id -> policy version and JSON of its lease
local REPLAY = KEYS[11]  -- hash: the replay buffer's configuration, session, totals
local REPLAY_FRAGMENTS = KEYS[12]  -- hash: fragment id -> entry
local REPLAY_ENTERING = KEYS[13]  -- zset: groups that will become chunks, by order of entry
local REPLAYED = KEYS[14]  -- hash: group id -> batches that have it from the replay buffer
local KNOWN = KEYS[15]  -- hash: name of a group -> its id, and how it ended
local LEFT = KEYS[16]  -- list: 'clock_ms name name ...' of groups that have left
local LEDGER = KEYS[17]  -- hash: 'state:environment' -> tokens
local keep = ARGV[1]  -- 1 to keep the batches for a rewind, else 0
local remembered_ms = ARGV[2]  -- how long the end of a batch is remembered, ms
local epoch = ARGV[3]  -- epoch at which keep and remembered_ms were read, or '' for any
-- seen: JSON of the lease as it was read; lease_id may be '-'
local batches = rows(ARGV, 4, {'batch_id', 'seen', 'step', 'lease_id'})
-- include clock
-- include bulk
-- include mark_payloads
-- include group_entry
-- include group_names
-- include remember_ends
-- include note_batch
-- include enqueue_for_replay
-- include replayed_references
-- include ledger
-- include deliver_groups

if redis.call('EXISTS', RUN) == 0 then return {{}, 0, 0} end
if epoch ~= '' and (redis.call('HGET', RUN, 'epoch') or '0') ~= epoch then return {{}, 0, 0} end
for _, batch in ipairs(batches) do
  if redis.call('HGET', LEASE_STATES, batch.batch_id) == batch.seen then
    batch.manifest = redis.call('HGET', LEASES, batch.batch_id)
    batch.groups = cjson.decode(batch.manifest)
  end
end
local ended, entered, replayed, clock = {}, 0, 0, advance_clock(RUN)
for _, batch in ipairs(batches) do
  local id, step, groups = batch.batch_id, batch.step, batch.groups
  if groups and redis.call('HDEL', LEASE_STATES, id) == 1 then
    local fresh, fresh_bytes, bytes = split_replayed(groups)
    ended[#ended + 1] = id
    entered, replayed = entered + enqueue_for_replay(fresh), replayed + #groups - #fresh
    deliver_groups(fresh, fresh_bytes, batch, clock)
    if keep == '1' then
      redis.call('HSET', KEPT, id, batch.manifest)
      redis.call('HSET', KEPT_LEASES, id, (redis.call('HGET', RUN, 'policy_version') or '0') .. ' ' .. batch.seen)
      redis.call('ZADD', KEPT_STEPS, step, id)
      redis.call('HINCRBY', RUN, 'kept_bytes', bytes)
    else
      release_replayed(groups, UNREFERENCED, REPLAYED)
      note_unkept(RUN, step)
    end
    note_batch(id, string.format('acknowledged %s %s %.0f', batch.lease_id, step, clock), step, clock)
    redis.call('HDEL', LEASES, id)
  end
end
return {ended, entered, replayed}
