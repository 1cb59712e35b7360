-- observe_groups: update items by the rewards of new groups, in admit_and_observe (not a command of its own).
--
-- hash, zset: the keys of each curriculum (curriculum_keys)
local observers = rows(KEYS, places.behind, {'curriculum', 'items', 'estimates', 'mean_reward', 'posterior',
  'signal', 'last', 'drawn', 'unseen', 'prior_only', 'category', 'arms', 'in_flight', 'holders'})
-- for each curriculum. bins: how many bins are arms of the bandit; 0 if categories are the arms
local settings = rows(ARGV, submitted.behind, {'bins', 'most_items'}, #observers)
-- curriculum and group: their numbers from 1. change: the update (curriculum_estimates), or '' for none
local observations = rows(ARGV, submitted.behind + 2 * #observers, {'curriculum', 'group', 'item', 'change'})

-- Count observations. Leave out those without a change, and those of new items for which there is no room.
local function observe_new(c, bins, most_items, made)
  local keys, counted = {}, 0
  for n, observation in ipairs(made) do keys[n] = observation.item end
  look_up(c, keys)
  local room = most_items - redis.call('HLEN', c.items)
  for _, observation in ipairs(made) do
    local item = c.looked_up[observation.item]
    local to_be_made = item.fresh and not item.now
    if observation.change ~= '' and (room > 0 or not to_be_made) then
      observe(c, observation.item, observation.change, bins)
      counted = counted + 1
      if to_be_made then room = room - 1 end
    end
  end
  write_observed(c)
  increase(c.curriculum, 'updates', counted)
  increase(c.curriculum, 'left_out', #made - counted)
end

-- Count the observations of new groups, in order.
local function observe_groups(outcomes)
  local made = {}
  for n in ipairs(observers) do made[n] = {} end
  for _, observation in ipairs(observations) do
    local own = made[tonumber(observation.curriculum)]
    if outcomes[tonumber(observation.group)] == 'new' then own[#own + 1] = observation end
  end
  for n, c in ipairs(observers) do
    c.looked_up = {}
    if #made[n] > 0 then observe_new(c, tonumber(settings[n].bins), settings[n].most_items, made[n]) end
  end
end
