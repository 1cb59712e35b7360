#!lua
-- begin_loading: create a curriculum without a name, for saved items.
--
-- Returns 1, or 0 if there is no such run; then nothing has changed.
-- Cost: O(n), n the categories and arms.
--
-- include clock
-- include bulk
-- include curriculum_keys
local CURRICULA_LOADING = KEYS[20]  -- zset: ids of curricula that are being loaded, by run clock of their last progress
local curriculum_id = ARGV[1]
local config = ARGV[2]  -- JSON
local revision = ARGV[3]  -- unique
local random_counter = ARGV[4]
local sample_count = ARGV[5]  -- samples so far
local updates = ARGV[6]  -- observations so far
local categories = cjson.decode(ARGV[7])  -- JSON list: their names, in the order of their numbers
local arm_values = cjson.decode(ARGV[8])  -- JSON object: arm of the bandit -> its value, a text

if redis.call('HEXISTS', RUN, 'config') == 0 then return 0 end
redis.call('ZADD', CURRICULA_LOADING, advance_clock(RUN), curriculum_id)
for number, name in ipairs(categories) do later('HSET', CATEGORY_NUMBERS, name, number) end
for arm, value in pairs(arm_values) do later('HSET', ARMS, arm, value) end
flush()
redis.call('HSET', CURRICULUM, 'config', config, 'revision', revision, 'counter', random_counter,
  'samples', sample_count, 'updates', updates)
return 1
