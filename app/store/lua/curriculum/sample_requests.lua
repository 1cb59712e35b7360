-- sample_requests: remember the items of requests, to give them to repeated requests again (not a command of its own).
--
-- The latest MOST_REQUESTS requests are remembered while their items are in flight. Record: {sample: id, items: keys,
-- told: whether an answer was 'repeated'; then no more items are drawn}.
local MOST_REQUESTS = 10000

local function forget_requests(c, clock)
  local old = forget_oldest(c.samples_until, clock, MOST_REQUESTS)
  if #old > 0 then redis.call('HDEL', c.samples, unpack(old)) end
end

local function remember(c, request, known, until_ms)
  later('HSET', c.samples, request, cjson.encode(known))
  later('ZADD', c.samples_until, until_ms, request)
end

-- Return the record of this request id, with the items that it still holds; whether to draw more; and their holders.
-- Draw no more if another sample has this id, or if a request with this id was already answered as repeated. If no item
-- is left, start again.
local function given_before(c, request, sample, clock)
  local text = request ~= '' and redis.call('HGET', c.samples, request)
  local known = text and cjson.decode(text) or {sample = sample, items = {}}
  local drawing, kept, held_by = known.sample == sample and not known.told, {}, {}
  local holders, until_ms = read('HMGET', c.holders, known.items), read('ZMSCORE', c.in_flight, known.items)
  for n, key in ipairs(known.items) do
    local holder, held = holders[n], tonumber(until_ms[n] or 0) > clock
    if held and holder and string.match(holder, '^%d+ (%S+)') == known.sample then
      kept[#kept + 1], held_by[key] = key, holder
    end
  end
  if not drawing and #kept == 0 then known, drawing = {sample = sample}, true end
  known.items = kept
  return known, drawing, held_by
end
