#!lua flags=allow-oom
-- note_waiting: note that a trainer waits for a batch, so that the run does not sleep (`tick`).
--
-- Returns 1, or 0 if there is no such run; then nothing is stored.
-- Cost: O(1).
--
local RUN = KEYS[1]  -- hash: run clock, when a trainer last got no batch
-- include clock

if redis.call('EXISTS', RUN) == 0 then return 0 end
redis.call('HSET', RUN, 'waited_ms', advance_clock(RUN))
return 1
