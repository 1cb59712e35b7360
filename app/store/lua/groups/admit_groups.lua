#!lua
-- admit_groups: index submissions whose payloads are written: all groups of a submission, or none.
--
-- Returns {outcomes, starvation}: the outcomes of the groups of each submission; counts of the starvation, else {}.
-- Outcomes are 'new'; 'written' by an earlier call of this command whose answer was lost; 'repeated OUTCOME'. If a
-- submission is refused, nothing of it is stored, and all its groups have one outcome: 'full GROUPS BYTES' that wait;
-- 'account_full LIMIT GROUPS BYTES' that its account has in the queue; 'exists GIVEN_ID': this id has other contents;
-- 'outdated': decide and write again.
-- Cost: O(n log m), n the groups, m the groups in a lane.
--
-- include rows
-- include bulk
-- include clock
-- include group_entry
-- include group_names
-- include admission
-- include token_queues
-- include token_limits
-- include decide_submissions
-- include lane_heads
-- include index_groups
-- include note_senders
-- include count_starvation
-- include store_new

local run = read_run()
local outcomes, results = decide_submissions(run)
return store_new(run, outcomes, results)
