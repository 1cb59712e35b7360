-- replay_moves: move chunks between places in the buffer (not a command of its own).
--
local versions = {}  -- versions whose counts change

local function count_version(chunk, by)
  increase(VERSION_COUNTS, chunk.version, by)
  versions[chunk.version] = true
end

local function put(chunk, place)
  chunk.place = place
  rank(chunk)
  if place ~= 'sampleable' then return end
  count_version(chunk, 1)
  weigh(chunk, 1)
end

local function take_out(chunk)
  for _, order in pairs(RANKED_IN[chunk.place] or {}) do later('ZREM', order, chunk.id) end
  if chunk.place ~= 'sampleable' then return end
  count_version(chunk, -1)
  weigh(chunk, -1)
end

-- Move a chunk to the place that fits, and return whether it moved. A chunk is reserved while samples hold all its
-- remaining uses.
local function place(chunk, most_uses)
  local fit = chunk.uses + chunk.held < most_uses and 'sampleable' or 'reserved'
  if chunk.place == fit then return false end
  take_out(chunk)
  put(chunk, fit)
  return true
end

local function write_changes()
  flush()
  for version in pairs(versions) do
    if redis.call('HGET', VERSION_COUNTS, version) == '0' then redis.call('HDEL', VERSION_COUNTS, version) end
  end
  versions = {}
end
