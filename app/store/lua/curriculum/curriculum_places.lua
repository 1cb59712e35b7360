-- curriculum_places: find the items at places (not a command of its own).
--
-- A place has an order, a name and a rank. In the order 'category', the name is the number of a category, and the rank
-- counts its items. In the order 'item', the name is a key, and the rank is not used. In other orders the name is ''.
local RANKED = {'mean_reward', 'posterior', 'signal', 'last', 'drawn', 'unseen', 'prior_only'}

-- Return the item at a place, or nil.
local function member_at(c, place)
  local order, name, rank = place.order, place.name, place.rank
  if order == 'item' then return redis.call('HEXISTS', c.items, name) == 1 and name or nil end
  if order ~= 'category' then return redis.call('ZRANGE', c[order], rank, rank)[1] end
  local before = redis.call('ZCOUNT', c.category, '-inf', '(' .. name)
  local at = string.format('%.0f', before + rank)
  local found = redis.call('ZRANGE', c.category, at, at, 'WITHSCORES')
  return found[2] == name and found[1] or nil
end

-- Return the reply about an item: its key, its entry, its estimate, and its rank in each requested order.
local function item_row(c, key, entry, estimate, orders)
  local about = {key, entry, estimate or ''}
  for order in string.gmatch(orders, '%S+') do
    local rank
    if order ~= 'category' then
      rank = redis.call('ZRANK', c[order], key)
    else
      local number = string.match(about[2], '^%d+')
      rank = redis.call('ZRANK', c.category, key) - redis.call('ZCOUNT', c.category, '-inf', '(' .. number)
    end
    about[#about + 1] = rank or -1
  end
  return about
end
