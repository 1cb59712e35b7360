#!lua flags=allow-oom
-- delete_items: forget items and their estimates.
--
-- Returns how many existed.
-- Cost: O(n log m), n the items named, m the items there are.
--
-- include bulk
-- include curriculum_keys
-- include curriculum_items
-- include curriculum_places
-- include rows
local item_keys = rest(ARGV, 1)

local gone = 0
for _, key in ipairs(item_keys) do
  local mean_reward = redis.call('ZSCORE', c.mean_reward, key)
  if mean_reward then increase(c.curriculum, 'mean_reward', -in_units(mean_reward)) end
  for _, order in ipairs(RANKED) do redis.call('ZREM', c[order], key) end
  redis.call('ZREM', c.category, key)
  redis.call('ZREM', c.in_flight, key)
  redis.call('HDEL', c.holders, key)
  redis.call('HDEL', c.estimates, key)
  gone = gone + redis.call('HDEL', c.items, key)
end
flush()
return gone
