#!lua flags=allow-oom
-- pass_turn: give the turn to the next process, or give up waiting for it.
--
-- Returns 1 if another process has the turn now, or 0: the process did not have it, or no other process waits for it.
-- Cost: O(processes that wait).
--
local TURN = KEYS[1]  -- string: the API process that has the turn; it expires. The channel of a process is KEY:PROCESS
local TURN_QUEUE = KEYS[2]  -- list: the API processes that wait for the turn, the first one first; it expires
local worker = ARGV[1]  -- the process that passes it on
local turn_ms = ARGV[2]  -- how long the next process may have the turn without asking again
local again = ARGV[3]  -- 1 if the process waits for the turn again, else 0

if redis.call('GET', TURN) ~= worker then
  if again == '0' then redis.call('LREM', TURN_QUEUE, 0, worker) end
  return 0
end
local following = redis.call('LPOP', TURN_QUEUE)
if not following then
  if again == '0' then redis.call('DEL', TURN) end
  return 0
end
redis.call('SET', TURN, following, 'PX', turn_ms)
if again == '1' then redis.call('RPUSH', TURN_QUEUE, worker) end
redis.call('PEXPIRE', TURN_QUEUE, 10000)
local waiting = redis.call('LLEN', TURN_QUEUE)
redis.call('PUBLISH', TURN .. ':' .. following, waiting > 0 and 'turn granted and wanted' or 'turn granted')
return 1
