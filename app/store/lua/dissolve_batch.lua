#!lua flags=allow-oom
-- dissolve_batch: end a lease that can not be served as it was; its groups go back to where they were in their lanes.
--
-- KEYS[1] run           hash  totals
-- KEYS[2] lanes         hash  lane -> groups queued
-- KEYS[3] leases        hash  batch id -> JSON list of groups
-- KEYS[4] lease_states  hash  batch id -> 'state|worker|deliveries|step|relaxed'
-- KEYS[5] served        hash  environment id or '-' -> sequences handed out
-- KEYS[6..] per group   zset  its lane
-- ARGV[1] batch id   ARGV[2] state seen   ARGV per group from 3 on: group id, lane, arrival, bytes, environment or '-', size
--
-- Returns 1, or 0 if the lease is in another state by now; then nothing has changed.
-- Cost: O(n log m), n the groups of the batch, m the groups in a lane.
local FIRST, FIELDS = 3, 6
if redis.call('HGET', KEYS[4], ARGV[1]) ~= ARGV[2] then return 0 end
for i = FIRST, #ARGV, FIELDS do
  local group, lane, arrival, bytes, environment, size = unpack(ARGV, i, i + FIELDS - 1)
  redis.call('ZADD', KEYS[6 + (i - FIRST) / FIELDS], arrival, group)
  redis.call('HINCRBY', KEYS[2], lane, 1)
  redis.call('HINCRBY', KEYS[5], environment, -size)
  redis.call('HINCRBY', KEYS[1], 'leased_groups', -1)
  redis.call('HINCRBY', KEYS[1], 'leased_bytes', -bytes)
  redis.call('HINCRBY', KEYS[1], 'queued_groups', 1)
  redis.call('HINCRBY', KEYS[1], 'queued_bytes', bytes)
end
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
return 1
