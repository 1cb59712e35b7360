-- sweeping: note that waiting groups must be checked against the policy version (not a command of its own).
--
-- Each request has a number, so that the end of a sweep does not end a later request.
local function request_sweep(run)
  advance_clock(run)  -- wakes the run
  redis.call('HSET', run, 'unswept', redis.call('HINCRBY', run, 'sweeps', 1))
end
