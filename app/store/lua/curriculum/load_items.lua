#!lua
-- load_items: put saved items into a curriculum that has no name yet, all or none.
--
-- Returns {'loaded'}, also if an earlier call loaded them; or, with nothing changed: {'gone'}: the load has ended;
-- {'full'}: there would be too many items; {'twice', index of the first item with a repeated key}.
-- Cost: O(n log m), n the items named, m the items of the curriculum.
--
-- include clock
-- include bulk
-- include curriculum_keys
-- include curriculum_items
-- include curriculum_estimates
-- include rows
local CURRICULA_LOADING = KEYS[20]  -- zset: ids of curricula that are being loaded, by run clock of their last progress
local curriculum_id = ARGV[1]
local most_items = ARGV[2]  -- that a curriculum may have
local before = ARGV[3]  -- how many items earlier calls loaded
-- prior may be '-'; estimate: '' if unseen; drawn: number of the sample that last handed it out; in_flight_ms may be ''
local loaded = rows(ARGV, 4, {'key', 'category', 'prior', 'metadata', 'estimate', 'drawn', 'in_flight_ms'})

if not redis.call('ZSCORE', CURRICULA_LOADING, curriculum_id) then return {'gone'} end
local keys = {}
for n, item in ipairs(loaded) do keys[n] = item.key end
local fresh, there = look_up(c, keys), redis.call('HLEN', c.items)
if fresh == 0 and there == before + #keys then return {'loaded'} end
local named = {}
for n, key in ipairs(keys) do
  if named[key] or not c.looked_up[key].fresh then return {'twice', n - 1} end
  named[key] = true
end
if there + fresh > tonumber(most_items) then return {'full'} end
local clock = advance_clock(RUN)
redis.call('ZADD', CURRICULA_LOADING, clock, curriculum_id)
for _, saved in ipairs(loaded) do
  local key, known, item = saved.key, saved.estimate, c.looked_up[saved.key]
  item.category, item.prior, item.metadata = saved.category, saved.prior, saved.metadata
  if known ~= '' then
    local ema, _, passed, failed, signal, last = struct.unpack(NUMBERS, known)
    item.estimates = known
    increase(c.curriculum, 'mean_reward', in_units(ema))
    later('HSET', c.estimates, key, known)
    add_to_orders(c, key, ema, passed, failed, signal, last)
    later('ZADD', c.drawn, saved.drawn, key)
  end
  if saved.in_flight_ms ~= '' then
    later('ZADD', c.in_flight, clock + saved.in_flight_ms, key)
    later('HSET', c.holders, key, saved.drawn .. ' loaded')
  end
  place(c, key, item)
end
flush()
return {'loaded'}
