#!lua
-- observe_items: count observations of items, all or none, and once. New items are registered.
--
-- KEYS[1] run  hash, and KEYS[2..19], the curriculum's: curriculum_keys names them
-- ARGV[1] id of the request   ARGV[2] ms it is recognised for   ARGV[3] most items of a curriculum   ARGV[4] how many
-- bins are arms of the bandit, or 0 if categories are
-- ARGV per observation from 5 on: its item, and the update (curriculum_estimates)
--
-- Returns {'observed', items in the order of mean reward, then for each observation the new estimate of its item, and
-- its rank by mean reward}; 'repeated' instead if the request was counted before; or {'gone'}, {'full'} as
-- register_items.
-- Cost: O(n log m), n the observations, m the items there are.
--
-- include clock
-- include bulk
-- include curriculum_keys
-- include curriculum_items
-- include curriculum_estimates
-- include curriculum_observed
local c = curriculum_at(2)
if redis.call('EXISTS', c.curriculum) == 0 then return {'gone'} end
local clock, outcome, keys = advance_clock(KEYS[1]), 'repeated', {}
redis.call('ZREMRANGEBYSCORE', c.requests, '-inf', clock)
for i = 5, #ARGV, 2 do keys[#keys + 1] = ARGV[i] end
if not redis.call('ZSCORE', c.requests, ARGV[1]) then
  outcome = 'observed'
  local fresh = look_up(c, keys)
  if fresh > 0 and redis.call('HLEN', c.items) + fresh > tonumber(ARGV[3]) then return {'full'} end
  for i = 5, #ARGV, 2 do observe(c, ARGV[i], ARGV[i + 1], tonumber(ARGV[4])) end
  write_observed(c)
  increase(c.curriculum, 'updates', #keys)
  flush()
  redis.call('ZADD', c.requests, clock + ARGV[2], ARGV[1])
end
local found = {outcome, redis.call('ZCARD', c.mean_reward)}
local known = read('HMGET', c.estimates, keys)
for n, key in ipairs(keys) do
  found[#found + 1] = known[n] and string.sub(known[n], 1, 48) or ''
  found[#found + 1] = redis.call('ZRANK', c.mean_reward, key) or -1
end
return found
