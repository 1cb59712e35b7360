#!lua flags=no-writes
-- find_items: look up the items at places; nothing is changed.
--
-- KEYS[1] run  hash, and KEYS[2..19], the curriculum's: curriculum_keys names them
-- ARGV[1] orders in which each item's rank is wanted, by blanks   ARGV[2] run clock: items in flight then are skipped;
-- or '' to look up all items
-- ARGV per place from 3 on: curriculum_places has them
--
-- Returns for each place {key, entry, estimate, rank in each of the orders, -1 if it is not there}, or {} if there is
-- no item or it is skipped.
-- Cost: O(n log m), n the places, m the items there are.
--
-- include curriculum_keys
-- include curriculum_places
local c = curriculum_at(2)
local found = {}
for i = 3, #ARGV, 3 do
  local key = member_at(c, ARGV[i], ARGV[i + 1], ARGV[i + 2])
  local until_ms = key and ARGV[2] ~= '' and tonumber(redis.call('ZSCORE', c.in_flight, key) or 0) or 0
  local free = ARGV[2] == '' or until_ms <= tonumber(ARGV[2])
  found[#found + 1] = key and free and told(c, key, ARGV[1]) or {}
end
return found
