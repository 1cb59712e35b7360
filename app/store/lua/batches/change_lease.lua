#!lua flags=allow-oom
-- change_lease: change the lease of a batch or a sample if it is still in the state that was read.
--
-- Returns 1, also if the lease already has the new state. 0 if it has another state, or if the run has another epoch;
-- then nothing has changed.
-- Cost: O(1).
--
local RUN = KEYS[1]  -- hash: run clock, epoch; its name is the channel that waiting requests listen to
local LEASE_STATES = KEYS[2]  -- hash: batch id -> JSON of its lease
local batch_id = ARGV[1]
local seen = ARGV[2]  -- JSON of the lease as it was read
local new = ARGV[3]  -- JSON of the lease from now on
local notify = ARGV[4]  -- 1 to notify waiting requests, else 0
local epoch = ARGV[5]  -- that the decision is based on, or '' for any
-- include clock

local state = redis.call('HGET', LEASE_STATES, batch_id)
if state == new then return 1 end
if state ~= seen then return 0 end
if epoch ~= '' and (redis.call('HGET', RUN, 'epoch') or '0') ~= epoch then return 0 end
advance_clock(RUN)
redis.call('HSET', LEASE_STATES, batch_id, new)
if notify == '1' then redis.call('PUBLISH', RUN, 'returned') end
return 1
