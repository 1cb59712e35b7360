#!lua
-- put_environment: write an environment's record, if the run has not changed since the decision.
--
-- Returns 1, also if an earlier call wrote the record, or 0 if the epoch changed; then nothing has changed.
-- Cost: O(log n), n the environments.
--
local RUN = KEYS[1]  -- hash: epoch, id of the next new environment
local ENVIRONMENTS = KEYS[2]  -- hash: environment id -> JSON record
local SEEN = KEYS[3]  -- hash: environment id -> run clock at its last sign of life, ms
local ENVIRONMENT_EPOCHS = KEYS[4]  -- zset: environment id -> epoch that began when its record was written
local epoch = ARGV[1]  -- that the decision is based on
local environment = ARGV[2]  -- its id
local record = ARGV[3]  -- JSON, unique
local forget_seen = ARGV[4]  -- 1 to forget the last sign of life of the id's former owner, else 0
-- include next_number

if redis.call('HGET', ENVIRONMENTS, environment) == record then return 1 end
if (redis.call('HGET', RUN, 'epoch') or '0') ~= epoch then return 0 end
redis.call('HSET', ENVIRONMENTS, environment, record)
if forget_seen == '1' then redis.call('HDEL', SEEN, environment) end
local following = tonumber(redis.call('HGET', RUN, 'next_environment') or 0)
redis.call('HSET', RUN, 'next_environment', math.max(following, environment + 1))
redis.call('ZADD', ENVIRONMENT_EPOCHS, next_number(RUN, 'epoch'), environment)
redis.call('PUBLISH', RUN, 'environment')
return 1
