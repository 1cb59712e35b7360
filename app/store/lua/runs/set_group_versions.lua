#!lua flags=allow-oom
-- set_group_versions: let waiting groups of later policy versions count as sampled by the current one.
--
-- Returns the number of groups that it found, or -1 if the run has changed since the decision; then nothing has
-- changed.
-- Cost: O(n log m), n the groups found, m those that wait and name a version.
--
local RUN = KEYS[1]  -- hash: epoch, policy version
local GROUPS = KEYS[2]  -- hash: group id -> entry
local VERSIONS = KEYS[3]  -- zset: group id -> policy version
local epoch = ARGV[1]  -- that the decision is based on
local policy_version = ARGV[2]  -- that the decision is based on
local limit = ARGV[3]  -- most groups to change in one call
-- include group_entry

local now = redis.call('HMGET', RUN, 'epoch', 'policy_version')
if (now[1] or '0') ~= epoch or (now[2] or '0') ~= policy_version then return -1 end
local group_ids = redis.call('ZRANGEBYSCORE', VERSIONS, '(' .. policy_version, '+inf', 'LIMIT', 0, limit)
for _, group in ipairs(group_ids) do
  local entry = redis.call('HGET', GROUPS, group)
  if entry then redis.call('HSET', GROUPS, group, with_entry_word(entry, 'policy_version', policy_version)) end
  redis.call('ZADD', VERSIONS, policy_version, group)
end
return #group_ids
