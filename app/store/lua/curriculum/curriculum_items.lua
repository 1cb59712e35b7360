-- curriculum_items: the entry of an item, and its place before it is seen (not a command of its own).
--
-- The entry is 'category prior metadata': the number of its category or 0, its prior or '-', JSON or nothing.
local REWARD_UNITS = 65536  -- the sum of mean rewards is a whole number of units of 1/65536, so that it cannot drift

local function in_units(mean_reward) return math.floor(mean_reward * REWARD_UNITS + 0.5) end

-- Look up items, and return how many do not exist yet. An item that is named twice is looked up once.
local function look_up(c, keys)
  local unknown, fresh = {}, 0
  for _, key in ipairs(keys) do
    if not c.looked_up[key] then
      c.looked_up[key] = {}
      unknown[#unknown + 1] = key
    end
  end
  if #unknown == 0 then return 0 end
  local seen = read('HMGET', c.estimates, unknown)
  for n, entry in ipairs(read('HMGET', c.items, unknown)) do
    local item = c.looked_up[unknown[n]]
    if not entry then fresh = fresh + 1 end
    item.fresh, item.estimates = not entry, seen[n] or nil
    item.entry = entry or '0 - '
    item.category, item.prior, item.metadata = string.match(item.entry, '^(%d+) (%S+) (.*)$')
    item.former_category, item.former_prior = item.category, item.prior
  end
  return fresh
end

-- Write an item that is new or changed, and rank it by its category. An unseen item is ranked by its prior, too.
local function place(c, key, item)
  local entry = item.category .. ' ' .. item.prior .. ' ' .. item.metadata
  if item.fresh or entry ~= item.entry then later('HSET', c.items, key, entry) end
  if item.fresh or item.category ~= item.former_category then later('ZADD', c.category, item.category, key) end
  if item.estimates or not item.fresh and item.prior == item.former_prior then return end
  if item.former_prior ~= '-' then
    increase(c.curriculum, 'mean_reward', -in_units(item.former_prior))
    if item.prior == '-' then later('ZREM', c.prior_only, key) later('ZREM', c.mean_reward, key) end
  elseif not item.fresh then
    later('ZREM', c.unseen, key)
  end
  if item.prior == '-' then return later('ZADD', c.unseen, 0, key) end
  increase(c.curriculum, 'mean_reward', in_units(item.prior))
  later('ZADD', c.prior_only, item.prior, key)
  later('ZADD', c.mean_reward, item.prior, key)
end
