#!lua flags=allow-oom
-- release_kept_batches: let go of delivered batches that were kept for a rewind.
--
-- KEYS[1] run         hash  totals, latest group, rewinds, policy version, checkpoint and its version
-- KEYS[2] groups      hash  group id -> entry
-- KEYS[3] unreferenced   zset  payloads to delete
-- KEYS[4] kept        hash  batch id -> JSON list of groups
-- KEYS[5] kept_steps  zset  batch id -> step
-- KEYS[6] kept_leases hash  batch id -> JSON of its lease
-- KEYS[7] replayed    hash  group id -> batches that have it from the replay buffer
-- ARGV[1] step of a checkpoint to store unless there is a later one, or ''
-- ARGV[2] its policy version, or '' for the one in force
-- ARGV[3] rewinds of the run when its trainer began, or ''   ARGV[4..] batch ids
--
-- Returns the number released; batches no longer kept are skipped. 0 if there is no such run. -1 if it was rewound since;
-- then nothing has changed.
-- Cost: O(n log m), n the groups of the batches, m the unreferenced payloads.
--
-- include bulk
-- include mark_payloads
-- include replayed_references
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if ARGV[3] ~= '' and ARGV[3] ~= (redis.call('HGET', KEYS[1], 'rewinds') or '0') then return -1 end
local contents, released = {}, 0
for i = 4, #ARGV do
  local manifest = redis.call('HGET', KEYS[4], ARGV[i])
  contents[i] = manifest and cjson.decode(manifest)
end
for i = 4, #ARGV do
  if contents[i] and redis.call('HDEL', KEYS[4], ARGV[i]) == 1 then
    local fresh, _, bytes = parted(contents[i])
    forget_payloads(KEYS[1], KEYS[2], KEYS[3], ids_of(fresh))
    let_go_of_replayed(contents[i], KEYS[3], KEYS[7])
    note_unkept(KEYS[1], redis.call('ZSCORE', KEYS[5], ARGV[i]))
    redis.call('HINCRBY', KEYS[1], 'kept_bytes', -bytes)
    redis.call('HDEL', KEYS[6], ARGV[i])
    redis.call('ZREM', KEYS[5], ARGV[i])
    released = released + 1
  end
end
flush()
local last = tonumber(redis.call('HGET', KEYS[1], 'checkpoint') or ARGV[1])
if ARGV[1] ~= '' and tonumber(ARGV[1]) >= last then
  local version = ARGV[2] ~= '' and ARGV[2] or redis.call('HGET', KEYS[1], 'policy_version') or 0
  redis.call('HSET', KEYS[1], 'checkpoint', ARGV[1], 'checkpoint_version', version)
  note_unkept(KEYS[1], ARGV[1])
end
return released
