#!lua flags=allow-oom
-- set_policy_version: store the policy version in force. If it goes down, note that chunks must be checked.
--
-- Returns 1, also if the version is in force already; or, with nothing changed: 0 if there is no such run, -1 if it was
-- rewound after its trainer began, -2 if another version is in force than the one that the decision is based on.
-- Cost: O(1).
--
local RUN = KEYS[1]  -- hash: policy version, rewinds, `trained_batches`, and what versions include
local REPLAY = KEYS[2]  -- hash: the replay buffer's configuration, revision, `unsettled`: revision to check chunks for
local policy_version = ARGV[1]
local decided_on = ARGV[2]  -- version in force that the decision is based on
local trained_batches = ARGV[3]  -- trained batches that no version includes yet
local trained_in_a_row = ARGV[4]  -- batches acknowledged before a version, as last seen
local versions_per_batch = ARGV[5]  -- as last seen
local version_cycle = ARGV[6]  -- JSON of the versions since a batch was acknowledged
local rewinds = ARGV[7]  -- number of rewinds when the trainer began, or '' for any
-- include clock
-- include sweeping
-- include change_policy_version

if redis.call('EXISTS', RUN) == 0 then return 0 end
if rewinds ~= '' and rewinds ~= (redis.call('HGET', RUN, 'rewinds') or '0') then return -1 end
local before = tonumber(redis.call('HGET', RUN, 'policy_version') or 0)
if tonumber(policy_version) ~= before then
  if tonumber(decided_on) ~= before then return -2 end
  redis.call('HSET', RUN, 'trained_batches', trained_batches, 'trained_in_a_row', trained_in_a_row,
    'batch_versions', versions_per_batch, 'version_cycle', version_cycle)
end
put_policy_version(RUN, REPLAY, policy_version)
return 1
