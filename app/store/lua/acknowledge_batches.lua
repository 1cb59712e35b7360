#!lua flags=allow-oom
-- acknowledge_batches: end leases whose batches reached their trainer; their groups are delivered.
--
-- KEYS[1] run           hash  totals, latest group
-- KEYS[2] groups        hash  group id -> 'bytes checksum accepted_ms'
-- KEYS[3] leases        hash  batch id -> JSON list of groups
-- KEYS[4] lease_states  hash  batch id -> 'state|worker|deliveries|step|relaxed'
-- KEYS[5] unindexed     zset  payloads to remove
-- ARGV pairs: batch id, state seen
--
-- Returns the number of leases ended; one that is in another state by now is passed over.
-- Cost: O(n log m), n the groups of the batches, m the unindexed payloads.
local ended = 0
local latest = redis.call('HGET', KEYS[1], 'latest')
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[4], ARGV[i]) == ARGV[i + 1] then
    local groups = cjson.decode(redis.call('HGET', KEYS[3], ARGV[i]))
    for _, group in ipairs(groups) do
      local id, bytes = group.group_id, group.payload_bytes
      redis.call('HDEL', KEYS[2], id)
      redis.call('HINCRBY', KEYS[1], 'leased_groups', -1)
      redis.call('HINCRBY', KEYS[1], 'leased_bytes', -bytes)
      redis.call('HINCRBY', KEYS[1], 'delivered_groups', 1)
      -- The newest group is kept for /latest_example until a newer one comes.
      if id ~= latest then redis.call('ZADD', KEYS[5], -1, id) end
    end
    redis.call('HDEL', KEYS[3], ARGV[i])
    redis.call('HDEL', KEYS[4], ARGV[i])
    ended = ended + 1
  end
end
return ended
