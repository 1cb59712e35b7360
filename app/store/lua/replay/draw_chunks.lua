-- draw_chunks: the chunks that draws name (not a command of its own).
--
local DRAWN_FROM = {order = ORDER, weights = WEIGHTS, versions = VERSIONS, uses = USES}
-- Of the rest of a chunk's entry: after its version, session, time, bytes, fragments, first number and mean version.
local HIGHEST_VERSION = '^%S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+) '

-- The member of a draw's range with its rank there; nil if the range has become smaller.
local function member_of(draw, below)
  local order, from = DRAWN_FROM[draw.ranked_by], draw.ranked_by .. ' ' .. draw.low
  below[from] = below[from] or redis.call('ZCOUNT', order, '-inf', '(' .. draw.low)
  local place = below[from] + draw.rank
  local found = redis.call('ZRANGE', order, place, place, 'WITHSCORES')
  if found[1] and tonumber(found[2]) <= tonumber(draw.high) then return found[1] end
end

local NEWEST, OLDEST, OLDEST_MS = tonumber(policy_version), tonumber(oldest_version), tonumber(oldest_ms)

local function may_be_sampled(chunk, most_uses)
  local highest = string.match(chunk.rest, HIGHEST_VERSION)
  return tonumber(chunk.version) >= OLDEST and tonumber(highest) <= NEWEST and tonumber(chunk.inserted_ms) >= OLDEST_MS
    and chunk.session == session and chunk.uses + chunk.held < most_uses
end

-- Return at most `most` different chunks in the order of the draws. Chunks that may not be sampled are skipped.
local function draw_chunks(most, most_uses)
  local found, seen, below = {}, {}, {}
  for n, draw in ipairs(draws) do
    if #found == most then break end
    local id = member_of(draw, below)
    if id and not seen[id] then
      local chunk = chunk_of(id)
      if tonumber(draw.accept) < chunk.weight then
        seen[id] = true
        if may_be_sampled(chunk, most_uses) then found[#found + 1] = {chunk = chunk, draw = draw, number = n} end
      end
    end
  end
  return found
end
