-- draw_chunks: the chunks that draws name (not a command of its own).
--
local ORDERS, FIRST_DRAW = {order = ORDER, weights = WEIGHTS, versions = VERSIONS, uses = USES}, 15
-- Of the rest of a chunk's entry: after its version, session, time, bytes, fragments, first number and mean version.
local HIGHEST_VERSION = '^%S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+) '

-- The member of a draw's range with its rank there; nil if the range has become smaller.
local function member_of(draw, below)
  local name, low, high, rank, accept = string.match(draw, '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
  local from = name .. ' ' .. low
  below[from] = below[from] or redis.call('ZCOUNT', ORDERS[name], '-inf', '(' .. low)
  local place = below[from] + rank
  local found = redis.call('ZRANGE', ORDERS[name], place, place, 'WITHSCORES')
  if found[1] and tonumber(found[2]) <= tonumber(high) then return found[1], tonumber(accept) end
end

local NEWEST, OLDEST, OLDEST_MS, SESSION = tonumber(ARGV[4]), tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11]

local function may_be_sampled(chunk, most_uses)
  local highest = string.match(chunk.rest, HIGHEST_VERSION)
  return tonumber(chunk.version) >= OLDEST and tonumber(highest) <= NEWEST and tonumber(chunk.inserted_ms) >= OLDEST_MS
    and chunk.session == SESSION and chunk.uses + chunk.held < most_uses
end

-- Return at most `wanted` different chunks in the order of the draws. Chunks that may not be sampled are skipped.
local function draw_chunks(wanted, most_uses)
  local found, seen, below = {}, {}, {}
  for i = FIRST_DRAW, #ARGV do
    if #found == wanted then break end
    local id, accept = member_of(ARGV[i], below)
    if id and not seen[id] then
      local chunk = chunk_of(id)
      if accept < chunk.weight then
        seen[id] = true
        if may_be_sampled(chunk, most_uses) then found[#found + 1] = {chunk = chunk, draw = ARGV[i]} end
      end
    end
  end
  return found
end
