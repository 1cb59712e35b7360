#!lua flags=allow-oom
-- beat_process: note that an API process is alive, and let it maintain runs if no other process does.
--
-- One process at a time maintains runs, until it is silent for too long or ends. Then the next process that calls
-- begins a new term.
--
-- Returns {its term, then the runs that need maintenance now}, or {} if another process maintains them.
-- Cost: O(log n + m), n the processes, m the runs returned.
--
local SERVICE = KEYS[1]  -- hash: service clock; the API process that maintains runs, and its term
local PROCESSES = KEYS[2]  -- zset: API process -> service clock at its last sign of life, ms
local RUNS = KEYS[3]  -- zset: names of runs by the service clock at which they need maintenance, ms
local process = ARGV[1]
local patience_ms = ARGV[2]  -- silence after which another process takes over
local forgotten_ms = ARGV[3]  -- silence after which a process is removed
-- include clock

local clock = advance_clock(SERVICE)
local held = redis.call('HMGET', SERVICE, 'maintainer', 'term')
redis.call('ZADD', PROCESSES, clock, process)
redis.call('ZREMRANGEBYSCORE', PROCESSES, '-inf', clock - forgotten_ms)
local term = held[2]
if held[1] ~= process then
  local heard = held[1] and redis.call('ZSCORE', PROCESSES, held[1])
  if heard and clock - heard <= tonumber(patience_ms) then return {} end
  redis.call('HSET', SERVICE, 'maintainer', process)
  term = redis.call('HINCRBY', SERVICE, 'term', 1)
end
local due = redis.call('ZRANGEBYSCORE', RUNS, '-inf', clock)
table.insert(due, 1, tostring(term))
return due
