#!lua
-- take_items: hand out the items at places, first come, none twice, and none that is in flight.
--
-- KEYS[1] run  hash, and KEYS[2..17], the curriculum's: curriculum_keys names them
-- ARGV[1] number of the sample   ARGV[2] token: who holds an item by it has it again   ARGV[3] ms for which others do not
-- get them   ARGV[4] how many are wanted   ARGV[5] orders in which each item's rank is wanted, by blanks
-- ARGV per place from 6 on: curriculum_places has them
--
-- Returns {'taken', items in flight, ms until the first of them is free or 0, a list of an item each: {number of its place from
-- 0, key, entry, what is known, ranks}}; or {'gone'}: there is no such curriculum any more.
-- Cost: O(n log m), n the places, m the items there are; of those whose time is up, at most 1000 are forgotten.
--
-- include clock
-- include many
-- include curriculum_keys
-- include curriculum_places
local c = curriculum_at(2)
if redis.call('EXISTS', c.curriculum) == 0 then return {'gone'} end
local clock, holder, wanted = advance_clock(KEYS[1]), ARGV[1] .. ' ' .. ARGV[2], tonumber(ARGV[4])
local free = redis.call('ZRANGEBYSCORE', c.in_flight, '-inf', clock, 'LIMIT', 0, 1000)
if #free > 0 then
  redis.call('ZREM', c.in_flight, unpack(free))
  redis.call('HDEL', c.holders, unpack(free))
end
local found, named = {}, {}
for i = 6, #ARGV, 3 do
  if #found >= wanted then break end
  local key = member_at(c, ARGV[i], ARGV[i + 1], ARGV[i + 2])
  if key and not named[key] then
    named[key] = true
    local held = tonumber(redis.call('ZSCORE', c.in_flight, key) or 0) > clock
    if not held or redis.call('HGET', c.holders, key) == holder then
      local about = told(c, key, ARGV[5])
      table.insert(about, 1, (i - 6) / 3)
      found[#found + 1] = about
    end
  end
end
for _, about in ipairs(found) do
  later('ZADD', c.in_flight, clock + ARGV[3], about[2])
  later('HSET', c.holders, about[2], holder)
  if about[4] ~= '' then later('ZADD', c.drawn, ARGV[1], about[2]) end
end
flush()
local first = redis.call('ZRANGEBYSCORE', c.in_flight, '(' .. clock, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local free_ms = first[2] and first[2] - clock or 0
return {'taken', redis.call('ZCOUNT', c.in_flight, '(' .. clock, '+inf'), free_ms, found}
