#!lua flags=allow-oom
-- acknowledge_batches: end leases whose batches were trained on, or reached their trainer; their groups are delivered.
--
-- KEYS[1] run           hash  run clock, policy version, totals, latest group
-- KEYS[2] groups        hash  group id -> entry
-- KEYS[3] leases        hash  batch id -> JSON list of groups
-- KEYS[4] lease_states  hash  batch id -> JSON of its lease
-- KEYS[5] unreferenced     zset  payloads to delete
-- KEYS[6] history       hash  group or batch id -> what became of it
-- KEYS[7] ended         zset  group or batch id -> run clock at which that is forgotten, ms
-- KEYS[8] kept          hash  batch id -> JSON list of groups
-- KEYS[9] kept_steps    zset  batch id -> step
-- KEYS[10] kept_leases  hash  batch id -> policy version and JSON of its lease
-- KEYS[11] replay       hash  the replay buffer's configuration, session, totals
-- KEYS[12] fragments    hash  fragment id -> entry
-- KEYS[13] entering     zset  groups that are to become chunks, by the order they came in
-- KEYS[14] replayed     hash  group id -> batches that have it from the replay buffer
-- ARGV[1] 1 to keep the batches for a rewind, else 0   ARGV[2] ms history is kept
-- ARGV per batch from 3 on: batch id, lease seen, step, lease id or '-'
--
-- Returns {leases ended, groups that entered the replay buffer, groups that they had from there}; a lease that is in
-- another state by now is passed over. A run that is not there stays so: {0, 0, 0}.
-- Cost: O(n log m), n the groups of the batches, m those whose history is kept.
--
-- include clock
-- include bulk
-- include mark_payloads
-- include enqueue_for_replay
-- include replayed_references
-- include deliver_groups
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, 0, 0} end
local manifests, contents = {}, {}
for i = 3, #ARGV, 4 do
  if redis.call('HGET', KEYS[4], ARGV[i]) == ARGV[i + 1] then
    manifests[i] = redis.call('HGET', KEYS[3], ARGV[i])
    contents[i] = cjson.decode(manifests[i])
  end
end
local ended, entered, replayed, clock = 0, 0, 0, advance_clock(KEYS[1])
for i = 3, #ARGV, 4 do
  local batch, step, groups = ARGV[i], ARGV[i + 2], contents[i]
  if groups and redis.call('HDEL', KEYS[4], batch) == 1 then
    local fresh, fresh_bytes, bytes = parted(groups)
    ended, entered, replayed = ended + 1, entered + enqueue_for_replay(fresh), replayed + #groups - #fresh
    deliver_groups(fresh, fresh_bytes, batch, step, clock, ARGV[i + 3])
    if ARGV[1] == '1' then
      redis.call('HSET', KEYS[8], batch, manifests[i])
      redis.call('HSET', KEYS[10], batch, (redis.call('HGET', KEYS[1], 'policy_version') or '0') .. ' ' .. ARGV[i + 1])
      redis.call('ZADD', KEYS[9], step, batch)
      redis.call('HINCRBY', KEYS[1], 'kept_bytes', bytes)
    else
      let_go_of_replayed(groups, KEYS[5], KEYS[14])
      note_unkept(KEYS[1], step)
    end
    redis.call('HSET', KEYS[6], batch, string.format('acknowledged %s %s %.0f', ARGV[i + 3], step, clock))
    redis.call('ZADD', KEYS[7], clock + ARGV[2], batch)
    redis.call('HDEL', KEYS[3], batch)
  end
end
return {ended, entered, replayed}
