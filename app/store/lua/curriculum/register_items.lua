#!lua
-- register_items: make items, or change existing ones; their estimates stay. All or none.
--
-- KEYS[1] run  hash, and KEYS[2..19], the curriculum's: curriculum_keys names them
-- ARGV[1] most items and ARGV[2] most categories of a curriculum   ARGV[3] 1 to change only existing items, else 0
-- ARGV per item from 4 on: its key; its category after '=', its prior, its metadata as JSON; each of them '' to leave
-- it as it is, or '-' for none
--
-- Returns {'registered', how many are new}; or, with nothing changed: {'gone'}: there is no such curriculum any more;
-- {'full'}: there would be too many items; {'crowded'}: too many categories; {'missing'}: an item is not there.
-- Cost: O(n log m), n the items named, m the items there are.
--
-- include bulk
-- include curriculum_keys
-- include curriculum_items
local c = curriculum_at(2)

local function category_numbers()
  local names, numbers = {}, {}
  for i = 5, #ARGV, 4 do
    local name = string.match(ARGV[i], '^=(.*)$')
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
for i = 4, #ARGV, 4 do keys[#keys + 1] = ARGV[i] end
local fresh = look_up(c, keys)
if ARGV[3] == '1' and fresh > 0 then return {'missing'} end
if fresh > 0 and redis.call('HLEN', c.items) + fresh > tonumber(ARGV[1]) then return {'full'} end
local numbers, last = category_numbers()
if last > tonumber(ARGV[2]) then return {'crowded'} end
for i = 4, #ARGV, 4 do
  local item, category, prior, metadata = c.looked_up[ARGV[i]], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if category ~= '' then item.category = numbers[string.sub(category, 2)] or '0' end
  if prior ~= '' then item.prior = prior end
  if metadata ~= '' then item.metadata = metadata == '-' and '' or metadata end
end
for key, item in pairs(c.looked_up) do place(c, key, item) end
flush()
return {'registered', fresh}
