-- sweeping: note that waiting groups are to be checked against the policy version (not a command of its own).
--
-- Each request has a number, so that the end of a sweep does not cover a later request.
local function request_sweep(run)
  advance_clock(run)  -- wakes it
  redis.call('HSET', run, 'unswept', redis.call('HINCRBY', run, 'sweeps', 1))
end
