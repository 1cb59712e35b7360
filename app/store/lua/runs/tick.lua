#!lua flags=allow-oom
-- tick: advance the run clock, store signs of life, expire silent members, and return what there is to do.
--
-- Returns {run clock in ms, list of the members that expired, then 1 or 0 each: are there buffers, unreferenced
-- payloads, marked hashes, leases, ids and histories to forget, groups that grow too old by waiting, a replay buffer,
-- states of curricula that are being loaded, environments, anything at all}. If there is no such run (it was forgotten,
-- or is about to be made), none is made.
-- Cost: O(signs of life + groups and members forgotten); at most 10,000 groups and 1,000 members at once.
--
-- include rows
local RUN = KEYS[1]  -- hash: run clock, configuration
local WORKERS = KEYS[2]  -- zset: API process -> run clock at its last tick, ms
local SEEN = KEYS[3]  -- hash: environment id -> run clock at its last sign of life, ms
local ENVIRONMENTS = KEYS[4]  -- hash: environment id -> JSON record
local RECENT = KEYS[5]  -- zset: group id -> run clock at admission, ms
local BUFFERS = KEYS[6]  -- hash: lane -> groups buffered
local UNREFERENCED = KEYS[7]  -- zset: payloads that are pending or marked for deletion
local MARKED_HASHES = KEYS[8]  -- set: their tokens
local LEASE_STATES = KEYS[9]  -- hash: batch id -> its lease
local GIVEN_IDS_UNTIL = KEYS[10]  -- zset: given ids by the run clock at which they are forgotten
local ENDED = KEYS[11]  -- zset: groups and batches by the run clock at which what became of them is forgotten
local REPLAY = KEYS[12]  -- hash: the replay buffer's configuration and totals
local GROUPS = KEYS[13]  -- hash: group id -> entry
-- zset: curricula whose state is being loaded, by the run clock at their last progress
local CURRICULA_LOADING = KEYS[14]
local MEMBERS = KEYS[15]  -- hash: 'environment:member' -> 'joined_ms running_groups'
local MEMBERS_HEARD = KEYS[16]  -- zset: members by the run clock at their last sign of life, ms
local MEMBER_COUNTS = KEYS[17]  -- hash: environment id -> its live members
local RUNNING = KEYS[18]  -- hash: environment id -> groups that its members run
local STARTED = KEYS[19]  -- hash: environment id -> groups that its members have started
local worker = ARGV[1]  -- this API process
local recognised_ms = ARGV[2]  -- how long a repeated submission is recognised
local member_ttl_ms = ARGV[3]  -- silence after which a member is gone
local environments_heard = cjson.decode(ARGV[4])  -- JSON object: environment id -> run clock when it was heard
local members_seen = rest(ARGV, 5)  -- 'environment:member' of each member that was heard
-- include clock
-- include members
-- include member_heartbeats

if redis.call('EXISTS', RUN) == 0 then return {0, {}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} end
local clock = advance_clock(RUN)
redis.call('ZADD', WORKERS, clock, worker)
redis.call('ZREMRANGEBYSCORE', WORKERS, '-inf', clock - 600000)
for id, heard_ms in pairs(environments_heard) do
  local heard = math.max(heard_ms, tonumber(redis.call('HGET', SEEN, id) or 0))
  if redis.call('HEXISTS', ENVIRONMENTS, id) == 1 then redis.call('HSET', SEEN, id, heard) end
end
beat_members(m, SEEN, members_seen, clock)
local expired = expire_members(m, clock - member_ttl_ms)
local old = redis.call('ZCOUNT', RECENT, '-inf', clock - recognised_ms)
if old > 0 then redis.call('ZREMRANGEBYRANK', RECENT, 0, math.min(old, 10000) - 1) end
local facts = {clock, expired}
for i, key in ipairs({BUFFERS, UNREFERENCED, MARKED_HASHES, LEASE_STATES}) do
  facts[2 + i] = redis.call('EXISTS', key)
end
local due = redis.call('ZCOUNT', GIVEN_IDS_UNTIL, '-inf', clock) + redis.call('ZCOUNT', ENDED, '-inf', clock)
facts[#facts + 1] = math.min(due, 1)
facts[#facts + 1] = tonumber(redis.call('HGET', RUN, 'aging') or 0)
facts[#facts + 1] = redis.call('EXISTS', REPLAY)
facts[#facts + 1] = redis.call('EXISTS', CURRICULA_LOADING)
facts[#facts + 1] = redis.call('EXISTS', ENVIRONMENTS)
local held = redis.call('HEXISTS', RUN, 'config') + redis.call('EXISTS', ENVIRONMENTS, RECENT, BUFFERS, UNREFERENCED,
  MARKED_HASHES, LEASE_STATES, GIVEN_IDS_UNTIL, ENDED, REPLAY, GROUPS, CURRICULA_LOADING, MEMBERS, MEMBERS_HEARD,
  MEMBER_COUNTS, RUNNING, STARTED)
facts[#facts + 1] = math.min(held, 1)
return facts
