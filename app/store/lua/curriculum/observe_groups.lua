-- observe_groups: update items by the rewards of new groups, in admit_groups (not a command of its own).
--
-- ARGV has for each curriculum, behind the groups: the number of bins that are arms of the bandit, or 0 if categories
-- are; most items; how many groups name an item. Then for each of these groups: its number, from 1, its item, and the
-- update (curriculum_estimates), or '' if its rewards do not count.
local CURRICULUM_KEYS = #PARTS

-- The observations of groups that are new, in order; from one argument to another.
local function new_observations(first, last, outcomes)
  local items, changes = {}, {}
  for i = first, last, 3 do
    if outcomes[tonumber(ARGV[i])] == 'new' then
      items[#items + 1], changes[#changes + 1] = ARGV[i + 1], ARGV[i + 2]
    end
  end
  return items, changes
end

-- Count observations. Those without room for their items, or with nothing to count, are left out.
local function observe_new(c, items, changes, bins, most)
  look_up(c, items)
  local room, counted = most - redis.call('HLEN', c.items), 0
  for n, key in ipairs(items) do
    local item = c.looked_up[key]
    local to_be_made = item.fresh and not item.now
    if changes[n] ~= '' and (room > 0 or not to_be_made) then
      observe(c, key, changes[n], bins)
      counted = counted + 1
      if to_be_made then room = room - 1 end
    end
  end
  write_observed(c)
  increase(c.curriculum, 'updates', counted)
  increase(c.curriculum, 'left_out', #items - counted)
end

local function observe_groups(groups, outcomes)
  local key, argument = OWN_KEYS + 2 * #groups, OWN_ARGUMENTS + WORDS * #groups
  while ARGV[argument] do
    local bins, most = tonumber(ARGV[argument]), tonumber(ARGV[argument + 1])
    local last = argument + 2 + 3 * ARGV[argument + 2]
    local items, changes = new_observations(argument + 3, last, outcomes)
    if #items > 0 then observe_new(curriculum_at(key), items, changes, bins, most) end
    key, argument = key + CURRICULUM_KEYS, last + 1
  end
end
