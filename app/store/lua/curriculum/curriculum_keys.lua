-- curriculum_keys: the keys that every script of a curriculum gets, by name (not a command of its own).
--
-- curriculum        hash  configuration, revision, totals, random counter; there as long as the curriculum is
-- items             hash  item -> 'category prior metadata', for every item (curriculum_items)
-- estimates         hash  seen item -> what is known of it (curriculum_estimates)
-- mean_reward              zset  seen items by mean reward; unseen ones with a prior by that
-- posterior         zset  seen items by the mean of their posterior
-- signal            zset  seen items by mean absolute advantage of their last group
-- last              zset  seen items by mean reward of their last group
-- drawn             zset  seen items by the number of the sample that last handed them out, 0 if none did
-- unseen            zset  items not observed yet and without a prior, all with score 0
-- prior_only          zset  items not observed yet, by their prior
-- category          zset  all items by the number of their category, 0 of those that have none
-- category_numbers  hash  category -> its number, from 1
-- arms              hash  arm of the bandit -> its value
-- in_flight         zset  items handed out, by the run clock from which others may have them, ms
-- holders           hash  those items -> 'number id attempt' of the sample that handed them out
-- requests          zset  requests that brought observations, by the run clock at which they are forgotten, ms
-- samples           hash  requests for samples -> JSON of what they were given (sample_requests)
-- samples_until     zset  those requests, by the run clock at which they are forgotten, ms
local PARTS = {'curriculum', 'items', 'estimates', 'mean_reward', 'posterior', 'signal', 'last', 'drawn', 'unseen',
  'prior_only',
  'category', 'category_numbers', 'arms', 'in_flight', 'holders', 'requests', 'samples', 'samples_until'}

-- The curriculum whose keys begin at this one, and what was looked up of it.
local function curriculum_at(first)
  local found = {looked_up = {}}
  for n, part in ipairs(PARTS) do found[part] = KEYS[first + n - 1] end
  return found
end
