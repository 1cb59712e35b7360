#!lua flags=allow-oom
-- put_replay: write the configuration and session of a replay buffer, if no request changed them since the decision.
--
-- Returns 1, also if both are stored already, or 0 if the buffer changed or there is no such run; then nothing changes.
-- Cost: O(1).
--
local RUN = KEYS[1]  -- hash: configuration, run clock
local REPLAY = KEYS[2]  -- hash: configuration, revision, session, `unsettled`: revision to check chunks for
local decided_on = ARGV[1]  -- revision that the decision is based on, or '' for none
local config = ARGV[2]  -- JSON
local session = ARGV[3]
local offset = ARGV[4]  -- offset of the rate limiter
local settle = ARGV[5]  -- 1 if chunks must be checked after the change (weights, sessions), else 0
-- include clock

local now = redis.call('HMGET', REPLAY, 'revision', 'config', 'session')
if now[2] == config and now[3] == session then return 1 end
if (now[1] or '') ~= decided_on or redis.call('HEXISTS', RUN, 'config') == 0 then return 0 end
advance_clock(RUN)
-- A removed buffer may be made again. Its revisions start from the time of day in us, so that none is used twice. The
-- new buffer does not have the groups that the previous one had (enqueue_for_replay).
local first = redis.call('HGET', RUN, 'time_ms') .. '000'
if redis.call('HSETNX', REPLAY, 'revision', first) == 1 then redis.call('HSET', REPLAY, 'restored', first) end
local revision = redis.call('HINCRBY', REPLAY, 'revision', 1)
redis.call('HSET', REPLAY, 'config', config, 'session', session, 'offset', offset)
if settle == '1' then redis.call('HSET', REPLAY, 'unsettled', revision) end
redis.call('PUBLISH', RUN, 'changed')
return 1
