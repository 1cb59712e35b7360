#!lua
-- put_run: write a run's configuration and policy, if nobody changed it since they were decided.
--
-- KEYS[1] run  hash  configuration, policy, epoch, step, the request that made it
-- ARGV[1] epoch decided on   ARGV[2] configuration, JSON   ARGV[3] policy, JSON   ARGV[4] step, or '' to go on
-- ARGV[5] 1 if groups grow too old by waiting, else 0   ARGV[6] the request that makes the run, or '' to change it
--
-- Returns 1, also if the run is like this already and no other request made it, or 0 if the run has changed; then nothing
-- is written.
-- Cost: O(1).
--
-- include clock
-- include epoch
local now = redis.call('HMGET', KEYS[1], 'epoch', 'config', 'policy', 'made_by')
local same = now[2] == ARGV[2] and now[3] == ARGV[3]
if same and (ARGV[6] == '' or ARGV[6] == now[4]) then return 1 end
if (now[1] or '0') ~= ARGV[1] then return 0 end
advance_clock(KEYS[1])
redis.call('HSET', KEYS[1], 'config', ARGV[2], 'policy', ARGV[3], 'aging', ARGV[5])
if ARGV[6] ~= '' then redis.call('HSET', KEYS[1], 'made_by', ARGV[6]) end
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'step', ARGV[4]) end
next_epoch(KEYS[1])
redis.call('PUBLISH', KEYS[1], 'changed')
return 1
