#!lua flags=no-writes
-- find_items: look up the items at places; nothing is changed.
--
-- Returns for each place {key, entry, estimate, rank in each of the orders, -1 if it is not there}, or {} if there is
-- no item.
-- Cost: O(n log m), n the places, m the items there are.
--
-- include curriculum_keys
-- include curriculum_places
-- include bulk
-- include rows
local orders = ARGV[1]  -- in which each item's rank is wanted, by blanks
local places = rows(ARGV, 2, {'order', 'name', 'rank'})  -- as curriculum_places has them

local found, keys, numbers = {}, {}, {}
for n, place in ipairs(places) do
  local key = member_at(c, place)
  found[n] = {}
  if key then keys[#keys + 1], numbers[#keys + 1] = key, n end
end
local entries, estimates = read('HMGET', c.items, keys), read('HMGET', c.estimates, keys)
for i, key in ipairs(keys) do found[numbers[i]] = item_row(c, key, entries[i], estimates[i], orders) end
return found
