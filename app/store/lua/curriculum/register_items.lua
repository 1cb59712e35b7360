#!lua
-- register_items: create items, or change existing ones, all or none. Their estimates stay.
--
-- Returns {'registered', how many are new}; or, with nothing changed: {'gone'}: there is no such curriculum;
-- {'full'}: there would be too many items; {'crowded'}: too many categories with items; {'missing'}: an item does not
-- exist.
-- Cost: O(n log m), n the items named, m the items there are. If no category is left, O(k log m), k the categories.
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

-- Return the numbers of the named categories, and those new categories for which there is no further number.
local function category_numbers()
  local names, numbers, left = {}, {}, {}
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
      if last < tonumber(most_categories) then
        last = last + 1
        numbers[name] = tostring(last)
        later('HSET', c.category_numbers, name, numbers[name])
      else
        left[#left + 1] = name
      end
    end
  end
  return numbers, left
end

-- Let these categories replace others that have no items: they get the numbers, so that no number is left out. Return
-- whether there were enough.
local function replace_unused(numbers, left)
  if #left == 0 then return true end
  local known, replaced = redis.call('HGETALL', c.category_numbers), 0
  for i = 1, #known, 2 do
    local former, number, name = known[i], known[i + 1], left[replaced + 1]
    if name and not numbers[former] and redis.call('ZCOUNT', c.category, number, number) == 0 then
      replaced = replaced + 1
      numbers[name] = number
      later('HDEL', c.category_numbers, former)
      later('HSET', c.category_numbers, name, number)
      later('HDEL', c.arms, 'category:' .. number)
    end
  end
  return replaced == #left
end

if redis.call('EXISTS', c.curriculum) == 0 then return {'gone'} end
local keys = {}
for n, new in ipairs(new_items) do keys[n] = new.key end
local fresh = look_up(c, keys)
if only_known == '1' and fresh > 0 then return {'missing'} end
if fresh > 0 and redis.call('HLEN', c.items) + fresh > tonumber(most_items) then return {'full'} end
local numbers, left = category_numbers()
if not replace_unused(numbers, left) then return {'crowded'} end
for _, new in ipairs(new_items) do
  local item = c.looked_up[new.key]
  if new.category ~= '' then item.category = numbers[string.sub(new.category, 2)] or '0' end
  if new.prior ~= '' then item.prior = new.prior end
  if new.metadata ~= '' then item.metadata = new.metadata == '-' and '' or new.metadata end
end
for key, item in pairs(c.looked_up) do place(c, key, item) end
flush()
return {'registered', fresh}
