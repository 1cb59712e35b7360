#!lua flags=allow-oom
-- release_kept_batches: release delivered batches that were kept for a rewind.
--
-- Returns the number released. It skips batches that are not kept any more. 0 if there is no such run. -1 if the run
-- was rewound after its trainer began; then nothing has changed.
-- Cost: O(n log m), n the groups of the batches, m the unreferenced payloads.
--
-- include rows
local RUN = KEYS[1]  -- hash: totals, latest group, rewinds, policy version, checkpoint and its version
local GROUPS = KEYS[2]  -- hash: group id -> entry
local UNREFERENCED = KEYS[3]  -- zset: payloads to delete
local KEPT = KEYS[4]  -- hash: batch id -> JSON list of groups
local KEPT_STEPS = KEYS[5]  -- zset: batch id -> step
local KEPT_LEASES = KEYS[6]  -- hash: batch id -> policy version and JSON of its lease when it was delivered
local REPLAYED = KEYS[7]  -- hash: group id -> batches that have it from the replay buffer
local checkpoint = ARGV[1]  -- step of a checkpoint to store, or ''; a later checkpoint stays
local policy_version = ARGV[2]  -- policy version of the checkpoint, or '' for the one in force
local rewinds = ARGV[3]  -- number of rewinds when the trainer began, or '' for any
local batch_ids = rest(ARGV, 4)
-- include bulk
-- include clock
-- include mark_payloads
-- include replayed_references

if redis.call('EXISTS', RUN) == 0 then return 0 end
if rewinds ~= '' and rewinds ~= (redis.call('HGET', RUN, 'rewinds') or '0') then return -1 end
advance_clock(RUN)
local contents, released = {}, 0
for i, batch in ipairs(batch_ids) do
  local manifest = redis.call('HGET', KEPT, batch)
  contents[i] = manifest and cjson.decode(manifest)
end
for i, batch in ipairs(batch_ids) do
  if contents[i] and redis.call('HDEL', KEPT, batch) == 1 then
    local fresh, _, bytes = split_replayed(contents[i])
    forget_payloads(RUN, GROUPS, UNREFERENCED, ids_of(fresh))
    release_replayed(contents[i], UNREFERENCED, REPLAYED)
    note_unkept(RUN, redis.call('ZSCORE', KEPT_STEPS, batch))
    redis.call('HINCRBY', RUN, 'kept_bytes', -bytes)
    redis.call('HDEL', KEPT_LEASES, batch)
    redis.call('ZREM', KEPT_STEPS, batch)
    released = released + 1
  end
end
flush()
local last = tonumber(redis.call('HGET', RUN, 'checkpoint') or checkpoint)
if checkpoint ~= '' and tonumber(checkpoint) >= last then
  local version = policy_version ~= '' and policy_version or redis.call('HGET', RUN, 'policy_version') or 0
  redis.call('HSET', RUN, 'checkpoint', checkpoint, 'checkpoint_version', version)
  note_unkept(RUN, checkpoint)
end
return released
