#!lua
-- take_items: hand out the items at places in order, each once, and none in flight. A repeated request gets the same
-- items.
--
-- KEYS[1] run  hash, and KEYS[2..19], the curriculum's: curriculum_keys names them
-- ARGV[1] number of the sample   ARGV[2] its id, and ARGV[3] which attempt: the same attempt gets its items again
-- ARGV[4] ms for which others do not get them   ARGV[5] how many are wanted   ARGV[6] orders in which each item's rank
-- is wanted, by blanks   ARGV[7] id of the request, or ''
-- ARGV per place from 8 on: curriculum_places has them
--
-- Returns {'taken', id of the sample, items in flight, ms until the first of them is free or 0, a list of items:
-- {number of its place from 0, key, entry, estimate, ranks}}; 'repeated' instead, and places of -1, if the request had
-- them before; or {'gone'}: there is no such curriculum any more.
-- Cost: O(n log m), n the places, m the items there are; at most 1000 expired items are forgotten.
--
-- include clock
-- include bulk
-- include curriculum_keys
-- include curriculum_places
-- include sample_requests
local c = curriculum_at(2)
if redis.call('EXISTS', c.curriculum) == 0 then return {'gone'} end
local clock, holder, wanted = advance_clock(KEYS[1]), table.concat(ARGV, ' ', 1, 3), tonumber(ARGV[5])
local free = redis.call('ZRANGEBYSCORE', c.in_flight, '-inf', clock, 'LIMIT', 0, 1000)
if #free > 0 then
  redis.call('ZREM', c.in_flight, unpack(free))
  redis.call('HDEL', c.holders, unpack(free))
end
forget_requests(c, clock)
local given, drawing = given_before(c, ARGV[7], ARGV[2], clock)
local found, named = {}, {}
local function add(place, key)
  local about = told(c, key, ARGV[6])
  table.insert(about, 1, place)
  found[#found + 1] = about
end
for _, key in ipairs(drawing and {} or given.items) do add(-1, key) end
for i = 8, drawing and #ARGV or 0, 3 do
  if #found >= wanted then break end
  local key = member_at(c, ARGV[i], ARGV[i + 1], ARGV[i + 2])
  if key and not named[key] then
    named[key] = true
    local held = tonumber(redis.call('ZSCORE', c.in_flight, key) or 0) > clock
    if not held then given.items[#given.items + 1] = key end
    if not held or redis.call('HGET', c.holders, key) == holder then
      add((i - 8) / 3, key)
      later('ZADD', c.in_flight, clock + ARGV[4], key)
      later('HSET', c.holders, key, holder)
      if found[#found][4] ~= '' then later('ZADD', c.drawn, ARGV[1], key) end
    end
  end
end
given.told = not drawing
if ARGV[7] ~= '' and #given.items > 0 then remember(c, ARGV[7], given, clock + ARGV[4]) end
flush()
local first = redis.call('ZRANGEBYSCORE', c.in_flight, '(' .. clock, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local free_ms, count = first[2] and first[2] - clock or 0, redis.call('ZCOUNT', c.in_flight, '(' .. clock, '+inf')
return {drawing and 'taken' or 'repeated', given.sample, count, free_ms, found}
