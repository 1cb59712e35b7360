#!lua flags=allow-oom
-- remove_members: let members of an environment leave; their running groups no longer count.
--
-- KEYS[1] members        hash  'environment:member' -> 'joined_ms running_groups'
-- KEYS[2] members_heard  zset  members by the run clock at their last sign of life, ms
-- KEYS[3] member_counts  hash  environment id -> its live members
-- KEYS[4] running        hash  environment id -> groups that its members run
-- KEYS[5] started        hash  environment id -> groups that its members have started, ended ones included
-- ARGV[1] environment id   ARGV[2..] 'environment:member' of each
--
-- Returns {list of those that left, how many members the environment has left}.
-- Cost: O(n log m), n the members named, m the members of the run.
--
-- include members
local m, removed = membership(1), {}
for i = 2, #ARGV do
  if remove_member(m, ARGV[i]) then removed[#removed + 1] = ARGV[i] end
end
return {removed, tonumber(redis.call('HGET', m.counts, ARGV[1]) or 0)}
