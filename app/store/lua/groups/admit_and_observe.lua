#!lua
-- admit_and_observe: do what admit_groups does, and update curricula by the rewards of the groups that are new.
--
-- Returns what admit_groups returns.
-- Cost: O(n log m), n the groups, m the groups in a lane, or the items of a curriculum.
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
-- include curriculum_items
-- include curriculum_estimates
-- include curriculum_observed
-- include observe_groups

local run = read_run()
local outcomes, results = decide_submissions(run)
observe_groups(outcomes)
return store_new(run, outcomes, results)
