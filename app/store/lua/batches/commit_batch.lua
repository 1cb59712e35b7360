#!lua flags=allow-oom
-- commit_batch: move the planned groups from their lanes into a new lease, all or none.
--
-- KEYS[1] run           hash  configuration epoch, policy version, step, totals
-- KEYS[2] groups        hash  group id -> entry
-- KEYS[3] lanes         hash  lane -> groups queued
-- KEYS[4] served        hash  environment id or '-' -> sequences handed out
-- KEYS[5] leases        hash  batch id -> JSON list of groups
-- KEYS[6] lease_states  hash  batch id -> JSON of its lease
-- KEYS[7] versions      zset  group id -> policy version
-- KEYS[8] samples       hash  sample id -> what the replay buffer gave to it; of a batch, under the batch's id
-- KEYS[9] replayed      hash  group id -> batches that have it from the replay buffer
-- KEYS[10..] per group  zset  its lane
-- ARGV[1] batch id   ARGV[2] its lease   ARGV[3] JSON list of groups   ARGV[4] epoch, ARGV[5] step and ARGV[6] policy
-- version planned on   ARGV[7] debts after this batch, JSON   ARGV[8] run clock at planning, ms   ARGV[9] 1 if relaxed,
-- else 0   ARGV[10] JSON of how evenly batches were divided so far, this one among them; or nothing, if it
-- is not divided   ARGV[11] JSON of how often groups were passed over, or nothing, if it is as before   ARGV[12] JSON
-- list of ids of the groups that it has from the replay buffer   ARGV[13] JSON of the environments that batches wait for   ARGV per group from the queue, from 14 on: group id, lane, environment id or '-', size
--
-- Returns 1, also if it was committed before and is in that state still, or 0; then nothing has changed.
-- Cost: O(n log m), n the groups of the batch, m the groups in a lane.
-- include bulk
-- include find_planned_groups
local FIRST, FIELDS = 14, 4
local known = redis.call('HGET', KEYS[6], ARGV[1])
if known then return known == ARGV[2] and 1 or 0 end
local now = redis.call('HMGET', KEYS[1], 'epoch', 'step', 'policy_version')
for i = 1, 3 do if (now[i] or '0') ~= ARGV[3 + i] then return 0 end end
local left, planned, bytes = {}, find_planned_groups(FIRST, FIELDS)
if not planned then return 0 end
local replayed = cjson.decode(ARGV[12])
local reserved = redis.call('HGET', KEYS[8], ARGV[1])
if #replayed > 0 and not (reserved and #cjson.decode(reserved).chunks == #replayed) then return 0 end
for _, group in ipairs(replayed) do redis.call('HINCRBY', KEYS[9], group, 1) end
for i = FIRST, #ARGV, FIELDS do
  local group, lane, environment, size = unpack(ARGV, i, i + FIELDS - 1)
  later('ZREM', KEYS[10 + (i - FIRST) / FIELDS], group)
  later('ZREM', KEYS[7], group)
  left[lane] = (left[lane] or 0) + 1
  increase(KEYS[4], environment, size)
end
for lane, groups in pairs(left) do
  if redis.call('HINCRBY', KEYS[3], lane, -groups) == 0 then redis.call('HDEL', KEYS[3], lane) end
end
flush()
redis.call('HINCRBY', KEYS[1], 'step', 1)
redis.call('HINCRBY', KEYS[1], 'queued_groups', -#planned)
redis.call('HINCRBY', KEYS[1], 'queued_bytes', -bytes)
redis.call('HINCRBY', KEYS[1], 'leased_groups', #planned)
redis.call('HINCRBY', KEYS[1], 'leased_bytes', bytes)
redis.call('HINCRBY', KEYS[1], 'relaxed_batches', ARGV[9])
redis.call('HSET', KEYS[1], 'debts', ARGV[7], 'last_batch_ms', ARGV[8], 'scarce', ARGV[13])
redis.call('HSET', KEYS[5], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[6], ARGV[1], ARGV[2])
if ARGV[11] ~= '' then redis.call('HSET', KEYS[1], 'delays', ARGV[11]) end
if ARGV[10] ~= '' then
  redis.call('HSET', KEYS[1], 'balance', ARGV[10])
  redis.call('PUBLISH', KEYS[1], 'divided')
end
return 1
