#!lua
-- put_replay: write the configuration and session of a replay buffer, if nobody changed them since the decision.
--
-- KEYS[1] run     hash  configuration, run clock
-- KEYS[2] replay  hash  configuration, revision, session, what is to be done after a change
-- ARGV[1] revision decided on, or ''   ARGV[2] configuration, JSON   ARGV[3] session
-- ARGV[4] the rate limiter's offset   ARGV[5] 1 if chunks must be checked for it: weights, sessions; else 0
--
-- Returns 1, also if it is written already, or 0 if the buffer changed or there is no such run; then nothing changes.
-- Cost: O(1).
--
-- include clock
local now = redis.call('HMGET', KEYS[2], 'revision', 'config', 'session')
if now[2] == ARGV[2] and now[3] == ARGV[3] then return 1 end
if (now[1] or '') ~= ARGV[1] or redis.call('HEXISTS', KEYS[1], 'config') == 0 then return 0 end
advance_clock(KEYS[1])
-- A removed buffer may be made again. Its revisions start from the time of day in us, so that none is used twice. The
-- new buffer does not have the groups that the previous one had (enqueue_for_replay).
local first = redis.call('HGET', KEYS[1], 'time_ms') .. '000'
if redis.call('HSETNX', KEYS[2], 'revision', first) == 1 then redis.call('HSET', KEYS[2], 'restored', first) end
local revision = redis.call('HINCRBY', KEYS[2], 'revision', 1)
redis.call('HSET', KEYS[2], 'config', ARGV[2], 'session', ARGV[3], 'offset', ARGV[4])
if ARGV[5] == '1' then redis.call('HSET', KEYS[2], 'unsettled', revision) end
redis.call('PUBLISH', KEYS[1], 'changed')
return 1
