#!lua
-- put_environment: write an environment's record, if no environment changed since the decision.
--
-- Returns 1, also for a record that is there already, or 0 if the epoch changed; then nothing has changed.
-- Cost: O(log n), n the environments.
--
local RUN = KEYS[1]  -- hash: epoch, id of the next environment that is new
local ENVIRONMENTS = KEYS[2]  -- hash: environment id -> JSON record
local SEEN = KEYS[3]  -- hash: environment id -> run clock at its last sign of life, ms
local ENVIRONMENT_EPOCHS = KEYS[4]  -- zset: environment id -> epoch that began when its record was written
local epoch = ARGV[1]  -- decided on
local environment = ARGV[2]  -- its id
local record = ARGV[3]  -- JSON, unlike any other
local forget_seen = ARGV[4]  -- 1 to forget when the former owner of the id was last heard, else 0

if redis.call('HGET', ENVIRONMENTS, environment) == record then return 1 end
if (redis.call('HGET', RUN, 'epoch') or '0') ~= epoch then return 0 end
redis.call('HSET', ENVIRONMENTS, environment, record)
if forget_seen == '1' then redis.call('HDEL', SEEN, environment) end
local following = tonumber(redis.call('HGET', RUN, 'next_environment') or 0)
redis.call('HSET', RUN, 'next_environment', math.max(following, environment + 1))
redis.call('ZADD', ENVIRONMENT_EPOCHS, redis.call('HINCRBY', RUN, 'epoch', 1), environment)
redis.call('PUBLISH', RUN, 'environment')
return 1
