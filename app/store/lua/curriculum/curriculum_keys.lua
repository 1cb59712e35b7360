-- curriculum_keys: the keys of a run's curriculum (not a command of its own).
--
local RUN = KEYS[1]  -- hash: run clock, configuration
local CURRICULUM = KEYS[2]  -- hash: configuration, revision, totals, random counter; exists while the curriculum does
local ITEMS = KEYS[3]  -- hash: item -> 'category prior metadata', for every item (curriculum_items)
local ESTIMATES = KEYS[4]  -- hash: seen item -> its estimate and its last scores (curriculum_estimates)
local MEAN_REWARD = KEYS[5]  -- zset: seen items by mean reward; unseen items with a prior, by their prior
local POSTERIOR = KEYS[6]  -- zset: seen items by the mean of their posterior
local SIGNAL = KEYS[7]  -- zset: seen items by mean absolute advantage of their last group
local LAST = KEYS[8]  -- zset: seen items by mean reward of their last group
local DRAWN = KEYS[9]  -- zset: seen items by the number of the sample that last handed them out, or 0
local UNSEEN = KEYS[10]  -- zset: items not observed yet and without a prior, all with score 0
local PRIOR_ONLY = KEYS[11]  -- zset: items not observed yet, by their prior
local CATEGORY = KEYS[12]  -- zset: all items by the number of their category, or 0
local CATEGORY_NUMBERS = KEYS[13]  -- hash: category -> its number, from 1
local ARMS = KEYS[14]  -- hash: arm of the bandit -> its value
local IN_FLIGHT = KEYS[15]  -- zset: items handed out, by the run clock from which other samples may take them, ms
local HOLDERS = KEYS[16]  -- hash: those items -> 'number id attempt' of the sample that handed them out
local REQUESTS = KEYS[17]  -- zset: requests that brought observations, by the run clock at which they came, ms
local SAMPLES = KEYS[18]  -- hash: requests for samples -> JSON of the items that they got (sample_requests)
local SAMPLES_UNTIL = KEYS[19]  -- zset: those requests, by the run clock at which they are forgotten, ms

-- The keys by name, and the items that were looked up.
local c = {curriculum = CURRICULUM, items = ITEMS, estimates = ESTIMATES, mean_reward = MEAN_REWARD,
  posterior = POSTERIOR, signal = SIGNAL, last = LAST, drawn = DRAWN, unseen = UNSEEN, prior_only = PRIOR_ONLY,
  category = CATEGORY, category_numbers = CATEGORY_NUMBERS, arms = ARMS, in_flight = IN_FLIGHT, holders = HOLDERS,
  requests = REQUESTS, samples = SAMPLES, samples_until = SAMPLES_UNTIL, looked_up = {}}
