-- replay_chunks: a chunk's entry, and its place in the buffer (not a command of its own).
--
-- Its entry is 'place uses held weight priority version session inserted_ms bytes fragments ...': held are the samples it
-- is in; the place is 'sampleable', 'withheld', 'past', or why it was retired while samples held it still.
local WORDS = '^(%S+) (%d+) (%d+) (%d+) (%S+) ((%d+) (%d+) (%d+) (%d+) (%d+) .*)$'

local function chunk_of(id)
  local chunk = {id = id}
  local entry = redis.call('HGET', CHUNKS, id)
  if not entry then return nil end
  chunk.place, chunk.uses, chunk.held, chunk.weight, chunk.priority, chunk.rest, chunk.version, chunk.session,
    chunk.inserted_ms, chunk.bytes, chunk.fragments = string.match(entry, WORDS)
  for _, word in ipairs({'uses', 'held', 'weight', 'bytes', 'fragments'}) do chunk[word] = tonumber(chunk[word]) end
  return chunk
end

local function write(chunk)
  local entry = string.format('%s %.0f %.0f %.0f %s %s', chunk.place, chunk.uses, chunk.held, chunk.weight,
    chunk.priority, chunk.rest)
  redis.call('HSET', CHUNKS, chunk.id, entry)
end

-- The weights of sampleable chunks add up to more than 64 bits: what is beyond 32 of each is added up by itself.
local function weigh(weight, sign)
  count('weight', sign * (weight % 4294967296))
  count('weight_high', sign * math.floor(weight / 4294967296))
end

local function zadd(order, score, id) redis.call('ZADD', order, score, id) end

local function rank(chunk, add)
  if chunk.place == 'withheld' then add(WITHHELD, chunk.version, chunk.id) end
  if chunk.place == 'past' then add(PAST, chunk.id, chunk.id) end
  if chunk.place ~= 'sampleable' then return end
  add(ORDER, chunk.id, chunk.id)
  add(WEIGHTS, string.format('%.0f', chunk.weight), chunk.id)
  add(VERSIONS, chunk.version, chunk.id)
  add(USES, -chunk.uses, chunk.id)
end

local function put(chunk, place)
  chunk.place = place
  rank(chunk, zadd)
  if place ~= 'sampleable' then return end
  redis.call('HINCRBY', VERSION_COUNTS, chunk.version, 1)
  weigh(chunk.weight, 1)
end

local function take_out(chunk)
  if chunk.place == 'withheld' then redis.call('ZREM', WITHHELD, chunk.id) end
  if chunk.place == 'past' then redis.call('ZREM', PAST, chunk.id) end
  if chunk.place ~= 'sampleable' then return end
  for _, order in ipairs({ORDER, WEIGHTS, VERSIONS, USES}) do redis.call('ZREM', order, chunk.id) end
  if redis.call('HINCRBY', VERSION_COUNTS, chunk.version, -1) == 0 then
    redis.call('HDEL', VERSION_COUNTS, chunk.version)
  end
  weigh(chunk.weight, -1)
end
