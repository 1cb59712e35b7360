#!lua flags=no-writes
-- find_items: look up the items at places; nothing is changed.
--
-- Returns {key, entry, estimate, rank in each of the orders} for each place, or {} if it has no item. The rank is -1 in
-- an order that does not have the item.
-- Cost: O(n log m), n the places, m the items there are.
--
-- include curriculum_keys
-- include curriculum_places
-- include bulk
-- include rows
local orders = ARGV[1]  -- names of orders, space-separated; a rank is returned for each
local places = rows(ARGV, 2, {'order', 'name', 'rank'})  -- as curriculum_places describes them

local found, keys, numbers = {}, {}, {}
for n, place in ipairs(places) do
  local key = member_at(c, place)
  found[n] = {}
  if key then keys[#keys + 1], numbers[#keys + 1] = key, n end
end
local entries, estimates = read('HMGET', c.items, keys), read('HMGET', c.estimates, keys)
for i, key in ipairs(keys) do found[numbers[i]] = item_row(c, key, entries[i], estimates[i], orders) end
return found
