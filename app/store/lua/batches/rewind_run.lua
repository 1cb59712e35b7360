#!lua flags=allow-oom
-- rewind_run: hand out every batch after a step again, those in trainers' hands and those that are kept, all or none.
--
-- KEYS[1] run           hash  totals, step, policy version and batches in none yet, rewinds, epoch, latest unkept step
-- KEYS[2] kept          hash  batch id -> JSON list of groups
-- KEYS[3] kept_steps    zset  batch id -> step
-- KEYS[4] leases        hash  batch id -> JSON list of groups
-- KEYS[5] lease_states  hash  batch id -> JSON of its lease
-- KEYS[6] kept_leases   hash  batch id -> policy version and JSON of its lease when it was delivered
-- KEYS[7] replay        hash  the replay buffer's configuration, revision, what is to be done after a change
-- ARGV[1] step to go back to   ARGV[2] step of the run and ARGV[3] rewinds seen   ARGV[4] policy version from now on
-- ARGV triples from 5 on: batch id, lease as read or '' if it is kept, new lease
--
-- Returns 1, or 0 if the run was rewound or a batch was taken since, a lease moved on, or other batches are kept after
-- that step than these; then nothing has changed. All earlier decisions become invalid.
-- Cost: O(n log m), n the batches and their groups, m the batches kept.
--
-- include clock
-- include epoch
-- include change_policy_version
-- include replayed_references
local now = redis.call('HMGET', KEYS[1], 'step', 'rewinds', 'unkept_step')
if (now[1] or '0') ~= ARGV[2] or (now[2] or '0') ~= ARGV[3] then return 0 end
if now[3] and tonumber(now[3]) > tonumber(ARGV[1]) then return 0 end
local manifests, contents, kept = {}, {}, 0
for i = 5, #ARGV, 3 do
  if ARGV[i + 1] == '' then
    manifests[i], kept = redis.call('HGET', KEYS[2], ARGV[i]), kept + 1
    if not manifests[i] then return 0 end
    contents[i] = cjson.decode(manifests[i])
  elseif redis.call('HGET', KEYS[5], ARGV[i]) ~= ARGV[i + 1] then
    return 0
  end
end
if redis.call('ZCOUNT', KEYS[3], '(' .. ARGV[1], '+inf') ~= kept then return 0 end
for i = 5, #ARGV, 3 do
  redis.call('HSET', KEYS[5], ARGV[i], ARGV[i + 2])
  if manifests[i] then
    local groups, bytes, kept_bytes = parted(contents[i])
    redis.call('HINCRBY', KEYS[1], 'kept_bytes', -kept_bytes)
    redis.call('HINCRBY', KEYS[1], 'leased_groups', #groups)
    redis.call('HINCRBY', KEYS[1], 'leased_bytes', bytes)
    redis.call('HINCRBY', KEYS[1], 'delivered_groups', -#groups)
    redis.call('HSET', KEYS[4], ARGV[i], manifests[i])
    redis.call('HDEL', KEYS[2], ARGV[i])
    redis.call('HDEL', KEYS[6], ARGV[i])
    redis.call('ZREM', KEYS[3], ARGV[i])
  end
end
redis.call('HDEL', KEYS[1], 'trained_batches')
put_policy_version(KEYS[1], KEYS[7], ARGV[4])
redis.call('HINCRBY', KEYS[1], 'rewinds', 1)
advance_clock(KEYS[1])
next_epoch(KEYS[1])
redis.call('PUBLISH', KEYS[1], 'rewound')
return 1
