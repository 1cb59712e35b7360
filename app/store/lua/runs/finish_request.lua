#!lua flags=allow-oom
-- finish_request: remove a request for work that is done, such as a sweep, unless the work was requested again.
--
-- Returns 1, or 0 if it was requested again; then nothing has changed.
-- Cost: O(1).
--
local RECORD = KEYS[1]  -- hash: the request
local field = ARGV[1]  -- that holds the request
local seen = ARGV[2]  -- its value when the work began

if redis.call('HGET', RECORD, field) ~= seen then return 0 end
return redis.call('HDEL', RECORD, field)
