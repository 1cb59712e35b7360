#!lua
-- put_member: make a worker process a member of an environment, or let it join again under its id.
--
-- Returns 2 for a new member, 1 for a known one (its running groups are 0 now), 0 if there is no such environment, -1
-- if there are too many members. At 0 and -1 nothing has changed.
-- Cost: O(log n), n the members of the run.
--
local RUN = KEYS[1]  -- hash: run clock
local ENVIRONMENTS = KEYS[2]  -- hash: environment id -> JSON record
local MEMBERS = KEYS[3]  -- hash: 'environment:member' -> 'joined_ms running_groups permits retries'
local MEMBERS_HEARD = KEYS[4]  -- zset: members by the run clock at their last sign of life, ms
local MEMBER_COUNTS = KEYS[5]  -- hash: environment id -> its live members
local RUNNING = KEYS[6]  -- hash: environment id -> groups that its members run
local STARTED = KEYS[7]  -- hash: environment id -> groups that its members have started, with ended ones
local environment = ARGV[1]  -- its id
local member = ARGV[2]  -- 'environment:member'
local most_members = ARGV[3]  -- of a run
-- include clock
-- include members

if redis.call('HEXISTS', ENVIRONMENTS, environment) == 0 then return 0 end
local known = member_of(m, member)
if not known and redis.call('HLEN', m.members) >= tonumber(most_members) then return -1 end
local clock = advance_clock(RUN)
redis.call('ZADD', m.heard, clock, member)
if known then
  write_member(m, known, 0, 0, '-')
  return 1
end
redis.call('HSET', m.members, member, string.format('%.0f 0 0 -', clock))
count(m.counts, environment, 1)
return 2
