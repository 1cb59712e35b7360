#!lua flags=allow-oom
-- rewind_run: hand delivered batches that are kept out again, all or none.
--
-- KEYS[1] run           hash  totals, latest step that is not kept
-- KEYS[2] kept          hash  batch id -> JSON list of groups
-- KEYS[3] kept_steps    zset  batch id -> step
-- KEYS[4] leases        hash  batch id -> JSON list of groups
-- KEYS[5] lease_states  hash  batch id -> JSON of its lease
-- KEYS[6] kept_leases   hash  batch id -> JSON of its lease when it was delivered
-- ARGV[1] step to go back to   ARGV pairs from 2 on: batch id, its lease from now on
--
-- Returns 1, or 0 if the batches kept after that step are not exactly these; then nothing has changed.
-- Cost: O(n log m), n the batches and their groups, m the batches kept.
--
-- include replayed_groups
local unkept = redis.call('HGET', KEYS[1], 'unkept_step')
if unkept and tonumber(unkept) > tonumber(ARGV[1]) then return 0 end
local after = redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. ARGV[1], '+inf')
if #after * 2 ~= #ARGV - 1 then return 0 end
local manifests, contents = {}, {}
for i = 2, #ARGV, 2 do
  manifests[i] = redis.call('HGET', KEYS[2], ARGV[i])
  if not manifests[i] then return 0 end
  contents[i] = cjson.decode(manifests[i])
end
for i = 2, #ARGV, 2 do
  local groups, bytes, kept_bytes = parted(contents[i])
  redis.call('HINCRBY', KEYS[1], 'kept_bytes', -kept_bytes)
  redis.call('HINCRBY', KEYS[1], 'leased_groups', #groups)
  redis.call('HINCRBY', KEYS[1], 'leased_bytes', bytes)
  redis.call('HINCRBY', KEYS[1], 'delivered_groups', -#groups)
  redis.call('HSET', KEYS[4], ARGV[i], manifests[i])
  redis.call('HSET', KEYS[5], ARGV[i], ARGV[i + 1])
  redis.call('HDEL', KEYS[2], ARGV[i])
  redis.call('HDEL', KEYS[6], ARGV[i])
  redis.call('ZREM', KEYS[3], ARGV[i])
end
redis.call('HDEL', KEYS[1], 'trained_batches')
redis.call('PUBLISH', KEYS[1], 'rewound')
return 1
