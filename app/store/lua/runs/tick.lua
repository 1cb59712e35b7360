#!lua flags=allow-oom
-- tick: move the run clock on, store signs of life, expire silent members, and return what there is to do.
--
-- KEYS[1] run           hash  run clock, configuration
-- KEYS[2] workers       zset  API process -> run clock at its last tick, ms
-- KEYS[3] seen          hash  environment id -> run clock at its last sign of life, ms
-- KEYS[4] environments  hash  environment id -> JSON record
-- KEYS[5] recent        zset  group id -> run clock at admission, ms
-- KEYS[6] buffers       hash  lane -> groups buffered
-- KEYS[7] unreferenced     zset  payloads that are pending or marked for deletion
-- KEYS[8] marked_hashes  set   their tokens
-- KEYS[9] lease_states  hash  batch id -> its lease
-- KEYS[10] given_ids_until  zset  given ids by the run clock at which they are forgotten
-- KEYS[11] ended        zset  groups and batches by the run clock at which what became of them is forgotten
-- KEYS[12] replay       hash  the replay buffer's configuration and totals
-- KEYS[13] groups       hash  group id -> entry
-- KEYS[14] curricula_loading  zset  curricula whose state is being loaded, by the run clock at their last progress
-- KEYS[15] members         hash  'environment:member' -> 'joined_ms running_groups'
-- KEYS[16] members_heard   zset  members by the run clock at their last sign of life, ms
-- KEYS[17] member_counts   hash  environment id -> its live members
-- KEYS[18] running         hash  environment id -> groups that its members run
-- KEYS[19] started         hash  environment id -> groups that its members have started
-- ARGV[1] this API process   ARGV[2] ms a repeated submission is recognised for   ARGV[3] ms of silence after which a
-- member is gone   ARGV[4] environments heard of   ARGV[5..] pairs: their ids, and the run clock then; then
-- 'environment:member' of each member heard of
--
-- Returns {run clock in ms, list of the members that expired, then 1 or 0 each: are there buffers, unreferenced payloads,
-- marked hashes, leases, things whose time to be forgotten has come, groups that grow too old by waiting, a replay buffer, states
-- of curricula that are being loaded, environments, anything at all}. A run that is not there (it was forgotten, or is
-- only about to be made) stays so.
-- Cost: O(environments and members heard of + groups and members forgotten); at most 10,000 groups, 1,000 members at once.
--
-- include clock
-- include members
-- include member_heartbeats
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, {}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} end
local clock = advance_clock(KEYS[1])
redis.call('ZADD', KEYS[2], clock, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', clock - 600000)
local m, polled = membership(15), 4 + 2 * ARGV[4]
for i = 5, polled, 2 do
  local heard = math.max(tonumber(ARGV[i + 1]), tonumber(redis.call('HGET', KEYS[3], ARGV[i]) or 0))
  if redis.call('HEXISTS', KEYS[4], ARGV[i]) == 1 then redis.call('HSET', KEYS[3], ARGV[i], heard) end
end
beat_members(m, KEYS[3], polled + 1, clock)
local expired = expire_members(m, clock - ARGV[3])
local old = redis.call('ZCOUNT', KEYS[5], '-inf', clock - ARGV[2])
if old > 0 then redis.call('ZREMRANGEBYRANK', KEYS[5], 0, math.min(old, 10000) - 1) end
local facts = {clock, expired}
for i = 6, 9 do facts[#facts + 1] = redis.call('EXISTS', KEYS[i]) end
local due = redis.call('ZCOUNT', KEYS[10], '-inf', clock) + redis.call('ZCOUNT', KEYS[11], '-inf', clock)
facts[#facts + 1] = math.min(due, 1)
facts[#facts + 1] = tonumber(redis.call('HGET', KEYS[1], 'aging') or 0)
facts[#facts + 1] = redis.call('EXISTS', KEYS[12])
facts[#facts + 1] = redis.call('EXISTS', KEYS[14])
facts[#facts + 1] = redis.call('EXISTS', KEYS[4])
local held = redis.call('HEXISTS', KEYS[1], 'config') + redis.call('EXISTS', unpack(KEYS, 4))
facts[#facts + 1] = math.min(held, 1)
return facts
