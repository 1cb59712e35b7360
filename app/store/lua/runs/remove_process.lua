#!lua flags=allow-oom
-- remove_process: note that an API process has ended, so that another one may maintain runs at once.
--
-- Returns 1.
-- Cost: O(log n), n the processes.
--
local SERVICE = KEYS[1]  -- hash: service clock; the API process that maintains runs, and its term
local PROCESSES = KEYS[2]  -- zset: API process -> service clock at its last sign of life, ms
local process = ARGV[1]

redis.call('ZREM', PROCESSES, process)
if redis.call('HGET', SERVICE, 'maintainer') == process then redis.call('HDEL', SERVICE, 'maintainer') end
return 1
