#!lua flags=allow-oom
-- release_items: release items of a sample that will not be tried. Items that the sample no longer has stay unchanged.
--
-- KEYS[1] run  hash, and KEYS[2..19], the curriculum's: curriculum_keys names them
-- ARGV[1] id of the sample   ARGV[2..] keys of items
--
-- Returns how many it had.
-- Cost: O(n log m), n the items named, m those in flight.
--
-- include curriculum_keys
local c = curriculum_at(2)
local released = 0
for n = 2, #ARGV do
  local holder = redis.call('HGET', c.holders, ARGV[n])
  if holder and string.match(holder, '^%d+ (%S+)') == ARGV[1] then
    redis.call('ZREM', c.in_flight, ARGV[n])
    released = released + redis.call('HDEL', c.holders, ARGV[n])
  end
end
return released
