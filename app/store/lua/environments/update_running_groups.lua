#!lua flags=allow-oom
-- update_running_groups: store how many groups a member runs, and let it start more while its environment may.
--
-- KEYS[1] members        hash  'environment:member' -> 'joined_ms running_groups'
-- KEYS[2] members_heard  zset  members by the run clock at their last sign of life, ms
-- KEYS[3] member_counts  hash  environment id -> its live members
-- KEYS[4] running        hash  environment id -> groups that its members run
-- KEYS[5] started        hash  environment id -> groups that its members have started, ended ones included
-- ARGV[1] 'environment:member'   ARGV[2] groups it runs, or '' for as many as it reported last   ARGV[3] groups it wants to
-- start   ARGV[4] groups that the environment could start   ARGV[5] groups that it had started when that was decided
--
-- Returns {groups it may start, groups that all members run then}, or {} if there is no such member. The groups
-- that it may start count as running at once, so two members that ask at the same time do not both get the last one.
-- Groups that ended after the decision give no room: the decision did not see where they went. Repeated after a lost
-- answer, it has the same effect.
-- Cost: O(1).
--
-- include members
local m = membership(1)
local member = member_of(m, ARGV[1])
if not member then return {} end
local running = ARGV[2] == '' and member.running or tonumber(ARGV[2])
local others = tonumber(redis.call('HGET', m.running, member.environment) or 0) - member.running
local since = tonumber(redis.call('HGET', m.started, member.environment) or 0) - ARGV[5]
local started = math.max(0, math.min(tonumber(ARGV[3]), ARGV[4] - math.max(0, since)))
count(m.started, member.environment, started + math.max(0, running - member.running))
if running + started ~= member.running then run_groups(m, member, running + started) end
return {started, others + running + started}
