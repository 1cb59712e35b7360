#!lua flags=no-writes
-- read_environments: read the records of a run's environments, or those that changed after an epoch.
--
-- Returns {epoch, number of all environments, list of ids, list of their JSON records}. Forgotten ones are not listed.
-- Cost: O(n + log m), n the records returned, m the environments.
--
local RUN = KEYS[1]  -- hash: epoch
local ENVIRONMENTS = KEYS[2]  -- hash: environment id -> JSON record
local ENVIRONMENT_EPOCHS = KEYS[3]  -- zset: environment id -> epoch that began when its record was written
local since = ARGV[1]  -- epoch, or '' for all records
-- include bulk

local epoch, count = redis.call('HGET', RUN, 'epoch') or '0', redis.call('HLEN', ENVIRONMENTS)
if since == '' then
  return {epoch, count, redis.call('HKEYS', ENVIRONMENTS), redis.call('HVALS', ENVIRONMENTS)}
end
local changed = redis.call('ZRANGEBYSCORE', ENVIRONMENT_EPOCHS, '(' .. since, '+inf')
return {epoch, count, changed, read('HMGET', ENVIRONMENTS, changed)}
