-- replay_chunks: read and write the entries of chunks, and their ranks in orders (not a command of its own).
--
-- An entry is 'place uses held weight priority version session inserted_ms bytes fragments first mean_version
-- highest_version tokens worker fragment_ids'. `held` counts the samples that hold it. The place is 'sampleable',
-- 'reserved', 'archived', or why it was retired while samples still held it. Changes are queued, and
-- `write_changes` writes them. Call it before the next read.
local WORDS = '^(%S+) (%d+) (%d+) (%d+) (%S+) ((%d+) (%d+) (%d+) (%d+) (%d+) %S+ %S+ (%d+) %S+ %S+ (%S+))$'

local function parse_chunk(id, entry)
  local place, uses, held, weight, priority, rest, version, session, inserted_ms, bytes, fragments, highest_version,
    fragment_ids = string.match(entry, WORDS)
  return {id = id, place = place, uses = tonumber(uses), held = tonumber(held), weight = tonumber(weight),
    priority = priority, rest = rest, version = version, session = session, inserted_ms = inserted_ms,
    bytes = tonumber(bytes), fragments = tonumber(fragments), highest_version = highest_version,
    fragment_ids = fragment_ids}
end

local function chunk_of(id)
  local entry = redis.call('HGET', CHUNKS, id)
  return entry and parse_chunk(id, entry) or nil
end

-- Return the chunks that exist, in the order of their ids.
local function chunks_of(ids)
  local chunks = {}
  for n, entry in ipairs(read('HMGET', CHUNKS, ids)) do
    if entry then chunks[#chunks + 1] = parse_chunk(ids[n], entry) end
  end
  return chunks
end

local function is_live(chunk) return chunk.place == 'sampleable' or chunk.place == 'reserved' end

local function write(chunk)
  later('HSET', CHUNKS, chunk.id, string.format('%s %.0f %.0f %.0f %s %s', chunk.place, chunk.uses, chunk.held,
    chunk.weight, chunk.priority, chunk.rest))
end

local function count(field, by)
  if by ~= 0 then increase(REPLAY, field, by) end
end

-- The sum of weights may need more than 64 bits, so `weight` sums the low 32 bits, and `weight_high` the other bits.
local function weigh(chunk, sign)
  count('weight', sign * (chunk.weight % 4294967296))
  count('weight_high', sign * math.floor(chunk.weight / 4294967296))
end

-- The orders of each place. Sampleable and reserved chunks have equal orders, because both are evicted by them.
local RANKED_IN = {
  sampleable = {order = ORDER, weights = WEIGHTS, versions = VERSIONS, uses = USES},
  reserved = {order = RESERVED_ORDER, weights = RESERVED_WEIGHTS, versions = RESERVED, uses = RESERVED_USES},
  archived = {order = ARCHIVED},
}
local function rank(chunk)
  local orders = RANKED_IN[chunk.place]
  if not orders then return end
  later('ZADD', orders.order, chunk.id, chunk.id)
  if not is_live(chunk) then return end
  later('ZADD', orders.weights, string.format('%.0f', chunk.weight), chunk.id)
  later('ZADD', orders.versions, chunk.version, chunk.id)
  later('ZADD', orders.uses, -chunk.uses, chunk.id)
end
