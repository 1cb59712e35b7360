#!lua flags=allow-oom
-- set_group_versions: let waiting groups count as sampled by another policy version.
--
-- Returns the number changed. It skips groups that do not wait any more.
-- Cost: O(n log m), n the groups, m those that wait and name a version.
--
-- include rows
local GROUPS = KEYS[1]  -- hash: group id -> entry
local VERSIONS = KEYS[2]  -- zset: group id -> policy version
local policy_version = ARGV[1]
local group_ids = rest(ARGV, 2)
-- include group_entry

local restamped = 0
for _, group in ipairs(group_ids) do
  local entry = redis.call('HGET', GROUPS, group)
  if entry and redis.call('ZSCORE', VERSIONS, group) then
    redis.call('HSET', GROUPS, group, with_entry_word(entry, 'policy_version', policy_version))
    redis.call('ZADD', VERSIONS, policy_version, group)
    restamped = restamped + 1
  end
end
return restamped
