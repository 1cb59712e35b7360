#!lua flags=allow-oom
-- update_running_groups: store how many groups a member runs, and let it start more while its environment may.
--
-- `permits` = min(reported running groups, former permits) + newly granted: assume that groups started without a permit
-- end first. Newly granted groups count as running at once, so that two members cannot both get the last one. Groups
-- that ended after the decision give no room: the decision did not see their outcome. It is safe to repeat after a lost
-- answer.
--
-- Returns {groups that it may start}, or {} if there is no such member.
-- Cost: O(1).
--
local MEMBERS = KEYS[1]  -- hash: 'environment:member' -> 'joined_ms running_groups permits retries'
local MEMBERS_HEARD = KEYS[2]  -- zset: members by the run clock at their last sign of life, ms
local MEMBER_COUNTS = KEYS[3]  -- hash: environment id -> its live members
local RUNNING = KEYS[4]  -- hash: environment id -> groups that its members run
local STARTED = KEYS[5]  -- hash: environment id -> groups that its members have started, with ended ones
local member = ARGV[1]  -- 'environment:member'
local reported = ARGV[2]  -- groups that it runs, or '' if unchanged
local start = ARGV[3]  -- groups that it wants to start
local allowed = ARGV[4]  -- groups that the environment could start
local after = ARGV[5]  -- groups that the environment had started at that decision
local retries = ARGV[6]  -- requests that the member repeated, or '' if unchanged
-- include members

local known = member_of(m, member)
if not known then return {} end
local now = reported == '' and known.running or tonumber(reported)
local since = tonumber(redis.call('HGET', m.started, known.environment) or 0) - after
local started = math.max(0, math.min(tonumber(start), allowed - math.max(0, since)))
count(m.started, known.environment, started + math.max(0, now - known.running))
local runs, permits = now + started, math.min(now, known.permits) + started
retries = retries == '' and known.retries or retries
if runs ~= known.running or permits ~= known.permits or retries ~= known.retries then
  write_member(m, known, runs, permits, retries)
end
return {started}
