#!lua
-- observe_items: count observations of items, all or none, and register new items. A repeated request counts once.
--
-- Returns {'observed', how many items are ranked by mean reward, then for each observation the new estimate of its
-- item, and its rank by mean reward}. 'repeated' instead of 'observed' if the request was counted before. {'gone'} or
-- {'full'} as in register_items.
-- Cost: O(n log m), n the observations, m the items there are; at most 1000 requests are forgotten.
--
-- include clock
-- include bulk
-- include curriculum_keys
-- include curriculum_items
-- include curriculum_estimates
-- include curriculum_observed
-- include forget_oldest
-- include rows
local request_id = ARGV[1]
local remembered_ms = ARGV[2]  -- how long a repeated request is recognised
local most_requests = ARGV[3]  -- that are remembered
local most_items = ARGV[4]  -- that a curriculum may have
local bins = ARGV[5]  -- how many bins are arms of the bandit; 0 if categories are the arms
local observations = rows(ARGV, 6, {'key', 'change'})  -- an item and its update (curriculum_estimates)

if redis.call('EXISTS', c.curriculum) == 0 then return {'gone'} end
local clock, outcome, keys = advance_clock(RUN), 'repeated', {}
local oldest = clock - remembered_ms
forget_oldest(c.requests, oldest, tonumber(most_requests))
for n, observation in ipairs(observations) do keys[n] = observation.key end
local came = redis.call('ZSCORE', c.requests, request_id)
if not came or tonumber(came) <= oldest then
  outcome = 'observed'
  local fresh = look_up(c, keys)
  if fresh > 0 and redis.call('HLEN', c.items) + fresh > tonumber(most_items) then return {'full'} end
  for _, observation in ipairs(observations) do observe(c, observation.key, observation.change, tonumber(bins)) end
  write_observed(c)
  increase(c.curriculum, 'updates', #keys)
  flush()
  redis.call('ZADD', c.requests, clock, request_id)
end
local found = {outcome, redis.call('ZCARD', c.mean_reward)}
local known = read('HMGET', c.estimates, keys)
for n, key in ipairs(keys) do
  found[#found + 1] = known[n] and string.sub(known[n], 1, 48) or ''
  found[#found + 1] = redis.call('ZRANK', c.mean_reward, key) or -1
end
return found
