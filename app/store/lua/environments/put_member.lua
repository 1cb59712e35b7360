#!lua
-- put_member: make a worker process a member of an environment, or let it join again under its id.
--
-- KEYS[1] run            hash  run clock
-- KEYS[2] environments   hash  environment id -> JSON record
-- KEYS[3] members        hash  'environment:member' -> 'joined_ms running_groups'
-- KEYS[4] members_heard  zset  members by the run clock at their last sign of life, ms
-- KEYS[5] member_counts  hash  environment id -> its live members
-- KEYS[6] running        hash  environment id -> groups that its members run
-- KEYS[7] started        hash  environment id -> groups that its members have started, ended ones included
-- ARGV[1] environment id   ARGV[2] 'environment:member'   ARGV[3] most members that a run may have
--
-- Returns 2 for a new member, 1 for a known one (its running groups are 0 now), 0 if there is no such environment, -1 if
-- there are too many members. At 0 and -1 nothing has changed.
-- Cost: O(log n), n the members of the run.
--
-- include clock
-- include members
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then return 0 end
local m = membership(3)
local known = member_of(m, ARGV[2])
if not known and redis.call('HLEN', m.members) >= tonumber(ARGV[3]) then return -1 end
local clock = advance_clock(KEYS[1])
redis.call('ZADD', m.heard, clock, ARGV[2])
if known then
  run_groups(m, known, 0)
  return 1
end
redis.call('HSET', m.members, ARGV[2], string.format('%.0f 0', clock))
count(m.counts, ARGV[1], 1)
return 2
