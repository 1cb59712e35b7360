#!lua
-- admit_groups: index submissions, whose payloads are written: of each all groups or none.
--
-- KEYS[1] run               hash  run clock, epoch, policy version, totals, latest group
-- KEYS[2] recent            zset  group id -> run clock at admission, ms
-- KEYS[3] unreferenced         zset  group id -> run clock when it became pending, ms, or -1 once marked for deletion
-- KEYS[4] groups            hash  group id -> entry
-- KEYS[5] seen              hash  environment id -> run clock at its last sign of life, ms
-- KEYS[6] sent              hash  environment id -> 'clock_ms size sequences'
-- KEYS[7] lanes             hash  lane -> groups queued
-- KEYS[8] buffers           hash  lane -> groups buffered
-- KEYS[9] versions          zset  group id -> policy version
-- KEYS[10] given_ids        hash  given id -> 'group_id outcome checksum'
-- KEYS[11] given_ids_until  zset  given id -> run clock at which it is forgotten, ms
-- KEYS[12] dropped          hash  'reason:environment' -> groups
-- KEYS[13] history          hash  group id -> what happened to it
-- KEYS[14] ended            zset  group id -> run clock at which that is forgotten, ms
-- KEYS[15] starvation       hash  what came since groups were last stored
-- KEYS[16..] per group      zset the lane or buffer it goes to, string its payload; then the keys of each curriculum
-- that observes some of them (curriculum_keys)
-- ARGV[1] epoch   ARGV[2] policy version decided on, or ''   ARGV[3] ms given ids are recognised for   ARGV[4] ms
-- history is kept   ARGV[5], ARGV[6] groups and bytes that may wait, or ''   ARGV[7] score to assume for a payload that
-- is not reserved: 0 if it was written in the same transaction, -1 if it should be   ARGV[8] groups of each submission
-- ARGV per group from 9 on: its id; 'queued', 'buffered' or why it is dropped; its entry without the time; then
-- observe_groups
--
-- Returns {list per submission of an outcome per group, the starvation counts while it lasts, else {}}. Outcomes:
-- 'new'; 'written' by an earlier call of this command whose answer was lost; 'repeated OUTCOME'. If a submission is
-- refused, none of it is stored and all its groups have one outcome: 'full GROUPS BYTES' that wait; 'exists GIVEN_ID',
-- which has other contents; 'outdated': decide and write again.
-- Cost: O(n log m), n the groups, m the groups in a lane, or the items of a curriculum.
--
-- include clock
-- include bulk
-- include read_submissions
-- include decide_submissions
-- include index_group
-- include count_starvation
-- include index_groups
local groups = read_submissions()
local run = run_as_it_is()
local moved_on = run.epoch ~= ARGV[1] or ARGV[2] ~= '' and run.policy_version ~= ARGV[2]
local outcomes, results = decide_submissions(groups, run, moved_on)
if ARGV[OWN_ARGUMENTS + WORDS * #groups] then  -- calls without curricula do not need these functions
-- include curriculum_keys
-- include curriculum_items
-- include curriculum_estimates
-- include curriculum_observed
-- include observe_groups
observe_groups(groups, outcomes)
end
local any_new, goes_on = index_groups(groups, outcomes, run, advance_clock(RUN))
flush()
if any_new then redis.call('PUBLISH', RUN, 'admitted') end
return {results, goes_on and redis.call('HGETALL', STARVATION) or {}}
