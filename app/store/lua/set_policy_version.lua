#!lua flags=allow-oom
-- set_policy_version: note the policy version in force, and that chunks must be looked over if it went down.
--
-- KEYS[1] run     hash  policy version, batches trained on that are in none yet
-- KEYS[2] replay  hash  the replay buffer's configuration, revision, what is to be done after a change
-- ARGV[1] the version   ARGV[2] batches trained on that are in no version then   ARGV[3] batches that made a version
--
-- Returns 1, or 0 if there is no such run; then nothing has changed.
-- Cost: O(1).
--
-- No order tells which chunks are partly of later versions. Whoever dies while looking them over leaves that to others.
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local before = tonumber(redis.call('HGET', KEYS[1], 'policy_version') or 0)
if tonumber(ARGV[1]) ~= before then
  redis.call('HSET', KEYS[1], 'trained_batches', ARGV[2], 'trained_per_version', ARGV[3])
end
redis.call('HSET', KEYS[1], 'policy_version', ARGV[1])
if tonumber(ARGV[1]) < before and redis.call('HEXISTS', KEYS[2], 'config') == 1 then
  redis.call('HSET', KEYS[2], 'unsettled', redis.call('HINCRBY', KEYS[2], 'revision', 1))
end
return 1
