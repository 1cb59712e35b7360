#!lua flags=allow-oom
-- ask_turn: give an API process the turn to plan batches of a run, or add it to the queue for the turn.
--
-- Returns {1, processes that wait for the turn} if the process has it. Returns {0, 0} if the process must wait: a
-- message on its channel grants the turn later.
-- Cost: O(processes that wait).
--
local TURN = KEYS[1]  -- string: the API process that has the turn; it expires. The channel of a process is KEY:PROCESS
local TURN_QUEUE = KEYS[2]  -- list: the API processes that wait for the turn, the first one first; it expires
local worker = ARGV[1]  -- the process that asks
local turn_ms = ARGV[2]  -- how long it may have the turn without asking again

local holder = redis.call('GET', TURN)
if redis.call('PTTL', TURN) > tonumber(turn_ms) then holder = false end  -- the clock of Redis went back
if holder and holder ~= worker then
  local again = redis.call('LPOS', TURN_QUEUE, worker)
  if again or redis.call('RPUSH', TURN_QUEUE, worker) == 1 then
    redis.call('PUBLISH', TURN .. ':' .. holder, 'turn wanted')
  end
  redis.call('PEXPIRE', TURN_QUEUE, 10000)
  return {0, 0}
end
redis.call('SET', TURN, worker, 'PX', turn_ms)
redis.call('LREM', TURN_QUEUE, 0, worker)
return {1, redis.call('LLEN', TURN_QUEUE)}
