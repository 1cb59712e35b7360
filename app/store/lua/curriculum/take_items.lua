#!lua
-- take_items: hand out the items at places, in order. Skip items in flight. A repeated request gets the same items.
--
-- Returns {'taken', id of the sample, items in flight, ms until the first of them is free or 0, list of items}. An item
-- is {number of its place from 0, or -1 if an earlier call handed it out, key, entry, estimate, ranks}. 'repeated'
-- instead of 'taken' if nothing more is drawn for this request id (sample_requests). {'gone'} if there is no such
-- curriculum.
-- Cost: O(n log m), n the places, m the items there are; at most 1000 expired items are forgotten.
--
-- include clock
-- include bulk
-- include curriculum_keys
-- include curriculum_places
-- include forget_oldest
-- include sample_requests
-- include rows
local number = ARGV[1]  -- number of the sample
local sample_id = ARGV[2]
local attempt = ARGV[3]  -- a repeated call of the same attempt gets its items again
local ttl_ms = ARGV[4]  -- how long no other sample gets the items
local wanted = ARGV[5]  -- how many items
local orders = ARGV[6]  -- names of orders, space-separated; a rank is returned for each
local request_id = ARGV[7]  -- or the id of the sample
local places = rows(ARGV, 8, {'order', 'name', 'rank'})  -- as curriculum_places describes them

if redis.call('EXISTS', c.curriculum) == 0 then return {'gone'} end
local clock, holder, most = advance_clock(RUN), number .. ' ' .. sample_id .. ' ' .. attempt, tonumber(wanted)
local free = redis.call('ZRANGEBYSCORE', c.in_flight, '-inf', clock, 'LIMIT', 0, 1000)
if #free > 0 then
  redis.call('ZREM', c.in_flight, unpack(free))
  redis.call('HDEL', c.holders, unpack(free))
end
forget_requests(c, clock)
local given, drawing, held_by = given_before(c, request_id, sample_id, clock)
local found, named = {}, {}
-- Return whether the item has an estimate.
local function add(place, key)
  local entry, estimate = redis.call('HGET', c.items, key), redis.call('HGET', c.estimates, key)
  local about = item_row(c, key, entry, estimate, orders)
  table.insert(about, 1, place)
  found[#found + 1] = about
  return estimate ~= false
end
for _, key in ipairs(given.items) do
  -- Items of an earlier call of this attempt come first, without a place: their ranks have changed.
  if not drawing or held_by[key] == holder then
    named[key] = true
    add(-1, key)
  end
end
for n, place in ipairs(drawing and places or {}) do
  if #found >= most then break end
  local key = member_at(c, place)
  if key and not named[key] then
    named[key] = true
    local held = tonumber(redis.call('ZSCORE', c.in_flight, key) or 0) > clock
    if not held then given.items[#given.items + 1] = key end
    if not held or redis.call('HGET', c.holders, key) == holder then
      if add(n - 1, key) then later('ZADD', c.drawn, number, key) end
      later('ZADD', c.in_flight, clock + ttl_ms, key)
      later('HSET', c.holders, key, holder)
    end
  end
end
given.told = not drawing
if #given.items > 0 then remember(c, request_id, given, clock + ttl_ms) end
flush()
local first = redis.call('ZRANGEBYSCORE', c.in_flight, '(' .. clock, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local free_ms, count = first[2] and first[2] - clock or 0, redis.call('ZCOUNT', c.in_flight, '(' .. clock, '+inf')
return {drawing and 'taken' or 'repeated', given.sample, count, free_ms, found}
