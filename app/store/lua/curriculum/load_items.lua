#!lua
-- load_items: put saved items into a curriculum that has no name yet, all or none.
--
-- KEYS[1] run  hash, and KEYS[2..19], the curriculum's: curriculum_keys names them
-- KEYS[20] curricula_loading  zset  ids of curricula that are being loaded, by the run clock at their last progress
-- ARGV[1] its id   ARGV[2] most items   ARGV[3] number of items put into it before
-- ARGV per item from 4 on: its key; its category's number; its prior or '-'; its metadata; its estimate, or ''
-- if it is not seen; the number of the sample that last handed it out; ms for which others do not get it, or ''
--
-- Returns {'loaded'}, also if they were there before; or, with nothing changed: {'gone'}: the load has ended; {'full'}:
-- there would be too many items; {'twice', index of the first item with a repeated key}.
-- Cost: O(n log m), n the items named, m those that are there.
--
-- include clock
-- include bulk
-- include curriculum_keys
-- include curriculum_items
-- include curriculum_estimates
local c = curriculum_at(2)
if not redis.call('ZSCORE', KEYS[20], ARGV[1]) then return {'gone'} end
local keys = {}
for i = 4, #ARGV, 7 do keys[#keys + 1] = ARGV[i] end
local fresh, there = look_up(c, keys), redis.call('HLEN', c.items)
if fresh == 0 and there == ARGV[3] + #keys then return {'loaded'} end
local named = {}
for n, key in ipairs(keys) do
  if named[key] or not c.looked_up[key].fresh then return {'twice', n - 1} end
  named[key] = true
end
if there + fresh > tonumber(ARGV[2]) then return {'full'} end
local clock = advance_clock(KEYS[1])
redis.call('ZADD', KEYS[20], clock, ARGV[1])
for i = 4, #ARGV, 7 do
  local key, known, item = ARGV[i], ARGV[i + 4], c.looked_up[ARGV[i]]
  item.category, item.prior, item.metadata = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if known ~= '' then
    local ema, _, passed, failed, signal, last = struct.unpack(NUMBERS, known)
    item.estimates = known
    increase(c.curriculum, 'mean_reward', in_units(ema))
    later('HSET', c.estimates, key, known)
    stand(c, key, ema, passed, failed, signal, last)
    later('ZADD', c.drawn, ARGV[i + 5], key)
  end
  if ARGV[i + 6] ~= '' then
    later('ZADD', c.in_flight, clock + ARGV[i + 6], key)
    later('HSET', c.holders, key, ARGV[i + 5] .. ' loaded')
  end
  place(c, key, item)
end
flush()
return {'loaded'}
