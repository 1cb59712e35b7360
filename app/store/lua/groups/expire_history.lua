#!lua flags=allow-oom
-- expire_history: forget old given ids, and the old history of groups and batches.
--
-- Returns the number forgotten.
-- Cost: O(n log m), n those whose time has come, m those remembered.
--
local RUN = KEYS[1]  -- hash: run clock
local GROUPS = KEYS[2]  -- hash: group id -> entry
local GIVEN_IDS = KEYS[3]  -- hash: given id -> 'group_id outcome checksum'
local GIVEN_IDS_UNTIL = KEYS[4]  -- zset: given id -> run clock at which it is forgotten, ms
local HISTORY = KEYS[5]  -- hash: group or batch id -> what became of it
local ENDED = KEYS[6]  -- zset: group or batch id -> run clock at which that is forgotten, ms
local most = ARGV[1]  -- of each kind at once
local look_again_ms = ARGV[2]  -- until the id of a group that is still held is looked at again

local clock = tonumber(redis.call('HGET', RUN, 'clock_ms') or 0)
local forgotten = 0
for _, given in ipairs(redis.call('ZRANGEBYSCORE', GIVEN_IDS_UNTIL, '-inf', clock, 'LIMIT', 0, most)) do
  local group = string.match(redis.call('HGET', GIVEN_IDS, given) or '', '^%S+')
  if group and redis.call('HEXISTS', GROUPS, group) == 1 then
    redis.call('ZADD', GIVEN_IDS_UNTIL, clock + look_again_ms, given)
  else
    redis.call('HDEL', GIVEN_IDS, given)
    redis.call('ZREM', GIVEN_IDS_UNTIL, given)
    forgotten = forgotten + 1
  end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', ENDED, '-inf', clock, 'LIMIT', 0, most)) do
  redis.call('HDEL', HISTORY, id)
  redis.call('ZREM', ENDED, id)
  forgotten = forgotten + 1
end
return forgotten
