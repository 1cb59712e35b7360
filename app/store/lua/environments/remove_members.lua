#!lua flags=allow-oom
-- remove_members: remove members of an environment, and stop counting the groups that they run.
--
-- Returns {list of the removed members, how many members remain in the environment}.
-- Cost: O(n log m), n the members named, m the members of the run.
--
-- include rows
local MEMBERS = KEYS[1]  -- hash: 'environment:member' -> 'joined_ms running_groups permits retries'
local MEMBERS_HEARD = KEYS[2]  -- zset: members by the run clock at their last sign of life, ms
local MEMBER_COUNTS = KEYS[3]  -- hash: environment id -> its live members
local RUNNING = KEYS[4]  -- hash: environment id -> groups that its members run
local STARTED = KEYS[5]  -- hash: environment id -> groups that its members have started, with ended ones
local environment = ARGV[1]  -- its id
local leaving = rest(ARGV, 2)  -- 'environment:member' of each
-- include members

local removed = {}
for _, member in ipairs(leaving) do
  if remove_member(m, member) then removed[#removed + 1] = member end
end
return {removed, tonumber(redis.call('HGET', m.counts, environment) or 0)}
