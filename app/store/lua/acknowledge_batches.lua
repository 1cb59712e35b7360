#!lua flags=allow-oom
-- acknowledge_batches: end leases whose batches were trained on, or reached their trainer; their groups are delivered.
--
-- KEYS[1] run           hash  run clock, totals, latest group
-- KEYS[2] groups        hash  group id -> entry
-- KEYS[3] leases        hash  batch id -> JSON list of groups
-- KEYS[4] lease_states  hash  batch id -> JSON of its lease
-- KEYS[5] unindexed     zset  payloads to remove
-- KEYS[6] history       hash  group or batch id -> what became of it
-- KEYS[7] ended         zset  group or batch id -> run clock at which that is forgotten, ms
-- KEYS[8] kept          hash  batch id -> JSON list of groups
-- KEYS[9] kept_steps    zset  batch id -> step
-- KEYS[10] kept_leases  hash  batch id -> JSON of its lease
-- ARGV[1] 1 to keep the batches for a rewind, else 0   ARGV[2] ms history is kept
-- ARGV per batch from 3 on: batch id, lease seen, step, lease id or '-'
--
-- Returns the number of leases ended; one that is in another state by now is passed over. A run that is not there
-- stays so: 0.
-- Cost: O(n log m), n the groups of the batches, m those whose history is kept.
--
-- include clock
-- include forget_payload
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local manifests, contents = {}, {}
for i = 3, #ARGV, 4 do
  if redis.call('HGET', KEYS[4], ARGV[i]) == ARGV[i + 1] then
    manifests[i] = redis.call('HGET', KEYS[3], ARGV[i])
    contents[i] = cjson.decode(manifests[i])
  end
end
local ended, clock = 0, advance_clock(KEYS[1])
for i = 3, #ARGV, 4 do
  local batch, step, groups, bytes = ARGV[i], ARGV[i + 2], contents[i], 0
  if groups and redis.call('HDEL', KEYS[4], batch) == 1 then
    for _, group in ipairs(groups) do
      local entry = redis.call('HGET', KEYS[2], group.group_id) or ''
      bytes = bytes + group.payload_bytes
      redis.call('HSET', KEYS[6], group.group_id, string.format('delivered %s %s %.0f %s', batch, step, clock, entry))
      redis.call('ZADD', KEYS[7], clock + ARGV[2], group.group_id)
      if ARGV[1] == '0' then forget_payload(KEYS[1], KEYS[2], KEYS[5], group.group_id) end
    end
    if ARGV[1] == '1' then
      redis.call('HSET', KEYS[8], batch, manifests[i])
      redis.call('HSET', KEYS[10], batch, ARGV[i + 1])
      redis.call('ZADD', KEYS[9], step, batch)
      redis.call('HINCRBY', KEYS[1], 'kept_bytes', bytes)
    else
      note_unkept(KEYS[1], step)
    end
    redis.call('HINCRBY', KEYS[1], 'leased_groups', -#groups)
    redis.call('HINCRBY', KEYS[1], 'leased_bytes', -bytes)
    redis.call('HINCRBY', KEYS[1], 'delivered_groups', #groups)
    redis.call('HSET', KEYS[6], batch, string.format('acknowledged %s %s %.0f', ARGV[i + 3], step, clock))
    redis.call('ZADD', KEYS[7], clock + ARGV[2], batch)
    redis.call('HDEL', KEYS[3], batch)
    ended = ended + 1
  end
end
return ended
