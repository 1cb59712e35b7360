#!lua flags=allow-oom
-- request_sweep: note that waiting groups must be checked against the policy version.
--
-- Returns 1, or 0 if there is no such run, or if a sweep is requested already; then nothing has changed.
-- Cost: O(1).
--
local RUN = KEYS[1]  -- hash: run clock, number of the sweep to do
-- include clock
-- include sweeping

if redis.call('EXISTS', RUN) == 0 or redis.call('HEXISTS', RUN, 'unswept') == 1 then return 0 end
request_sweep(RUN)
return 1
