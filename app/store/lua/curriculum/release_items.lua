#!lua flags=allow-oom
-- release_items: release items of a sample that will not be tried. Skip items that the sample no longer has.
--
-- Returns how many it released.
-- Cost: O(n log m), n the items named, m those in flight.
--
-- include curriculum_keys
-- include rows
local sample_id = ARGV[1]
local item_keys = rest(ARGV, 2)

local released = 0
for _, key in ipairs(item_keys) do
  local holder = redis.call('HGET', c.holders, key)
  if holder and string.match(holder, '^%d+ (%S+)') == sample_id then
    redis.call('ZREM', c.in_flight, key)
    released = released + redis.call('HDEL', c.holders, key)
  end
end
return released
