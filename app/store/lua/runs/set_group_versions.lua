#!lua flags=allow-oom
-- set_group_versions: let waiting groups count as sampled by another policy version.
--
-- KEYS[1] groups    hash  group id -> entry
-- KEYS[2] versions  zset  group id -> policy version
-- ARGV[1] version   ARGV[2..] group ids
--
-- Returns the number restamped; a group that does not wait any more is passed over.
-- Cost: O(n log m), n the groups, m those that wait and name a version.
local restamped = 0
for i = 2, #ARGV do
  local entry = redis.call('HGET', KEYS[1], ARGV[i])
  if entry and redis.call('ZSCORE', KEYS[2], ARGV[i]) then
    local before, given = string.match(entry, '^(.*) %S+ (%S+)$')
    redis.call('HSET', KEYS[1], ARGV[i], before .. ' ' .. ARGV[1] .. ' ' .. given)
    redis.call('ZADD', KEYS[2], ARGV[1], ARGV[i])
    restamped = restamped + 1
  end
end
return restamped
