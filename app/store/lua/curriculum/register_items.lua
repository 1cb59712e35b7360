#!lua
-- register_items: create items, or change existing ones, all or none. Their estimates stay.
--
-- Returns {'registered', how many are new}; or, with nothing changed: {'gone'}: there is no such curriculum;
-- {'full'}: there would be too many items; {'crowded'}: too many categories; {'missing'}: an item does not exist.
-- Cost: O(n log m), n the items named, m the items there are.
--
-- include bulk
-- include curriculum_keys
-- include curriculum_items
-- include rows
local most_items = ARGV[1]  -- that a curriculum may have
local most_categories = ARGV[2]  -- that a curriculum may have
local only_known = ARGV[3]  -- 1 to change only existing items, else 0
-- category ('=NAME'), prior and metadata (JSON) may be '' to keep the value, or '-' for none
local new_items = rows(ARGV, 4, {'key', 'category', 'prior', 'metadata'})

local function category_numbers()
  local names, numbers = {}, {}
  for _, new in ipairs(new_items) do
    local name = string.match(new.category, '^=(.*)$')
    if name and not numbers[name] then
      names[#names + 1] = name
      numbers[name] = redis.call('HGET', c.category_numbers, name) or '?'
    end
  end
  local last = redis.call('HLEN', c.category_numbers)
  for _, name in ipairs(names) do
    if numbers[name] == '?' then
      last = last + 1
      numbers[name] = tostring(last)
      later('HSET', c.category_numbers, name, numbers[name])
    end
  end
  return numbers, last
end

if redis.call('EXISTS', c.curriculum) == 0 then return {'gone'} end
local keys = {}
for n, new in ipairs(new_items) do keys[n] = new.key end
local fresh = look_up(c, keys)
if only_known == '1' and fresh > 0 then return {'missing'} end
if fresh > 0 and redis.call('HLEN', c.items) + fresh > tonumber(most_items) then return {'full'} end
local numbers, last = category_numbers()
if last > tonumber(most_categories) then return {'crowded'} end
for _, new in ipairs(new_items) do
  local item = c.looked_up[new.key]
  if new.category ~= '' then item.category = numbers[string.sub(new.category, 2)] or '0' end
  if new.prior ~= '' then item.prior = new.prior end
  if new.metadata ~= '' then item.metadata = new.metadata == '-' and '' or new.metadata end
end
for key, item in pairs(c.looked_up) do place(c, key, item) end
flush()
return {'registered', fresh}
