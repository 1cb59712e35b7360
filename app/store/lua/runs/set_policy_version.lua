#!lua flags=allow-oom
-- set_policy_version: note the policy version in force, and that chunks must be looked over if it went down.
--
-- KEYS[1] run     hash  policy version, rewinds, batches trained on that are in none yet
-- KEYS[2] replay  hash  the replay buffer's configuration, revision, what is to be done after a change
-- ARGV[1] the version   ARGV[2] batches trained on that are in no version then   ARGV[3] batches that made a version
-- ARGV[4] rewinds of the run when its trainer began, or ''
--
-- Returns 1, or 0 if there is no such run, or -1 if it was rewound since; then nothing has changed.
-- Cost: O(1).
--
-- include change_policy_version
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if ARGV[4] ~= '' and ARGV[4] ~= (redis.call('HGET', KEYS[1], 'rewinds') or '0') then return -1 end
if tonumber(ARGV[1]) ~= tonumber(redis.call('HGET', KEYS[1], 'policy_version') or 0) then
  redis.call('HSET', KEYS[1], 'trained_batches', ARGV[2], 'trained_per_version', ARGV[3])
end
put_policy_version(KEYS[1], KEYS[2], ARGV[1])
return 1
