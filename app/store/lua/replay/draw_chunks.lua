-- draw_chunks: find the chunks that draws name (not a command of its own).
--
local DRAWN_FROM = {order = ORDER, weights = WEIGHTS, versions = VERSIONS, uses = USES}

local below = {}  -- how many members rank below a range, by the order and the lowest score of the range

local function count_below(ranked_by, low)
  local counted = below[ranked_by] or {}
  below[ranked_by] = counted
  counted[low] = counted[low] or redis.call('ZCOUNT', DRAWN_FROM[ranked_by], '-inf', '(' .. low)
  return counted[low]
end

-- Return the member that the n-th draw names in its range; nil if the range has become smaller.
local function member_of(n)
  local ranked_by = draws.ranked_by[n]
  local place = count_below(ranked_by, draws.low[n]) + draws.rank[n]
  local found = redis.call('ZRANGE', DRAWN_FROM[ranked_by], place, place, 'WITHSCORES')
  if found[1] and tonumber(found[2]) <= tonumber(draws.high[n]) then return found[1] end
end

local NEWEST, OLDEST, OLDEST_MS = tonumber(policy_version), tonumber(oldest_version), tonumber(oldest_ms)

local function may_be_sampled(chunk, most_uses)
  return tonumber(chunk.version) >= OLDEST and tonumber(chunk.highest_version) <= NEWEST
    and tonumber(chunk.inserted_ms) >= OLDEST_MS and chunk.session == session and chunk.uses + chunk.held < most_uses
end

local function draw_text(n)
  return table.concat({draws.ranked_by[n], draws.low[n], draws.high[n], draws.rank[n], draws.accept[n]}, ' ')
end

-- Return at most `most` different chunks in the order of the draws. Chunks that may not be sampled are skipped.
local function draw_chunks(most, most_uses)
  local found, seen, done = {}, {}, 0
  while #found < most and done < #draws.rank do
    local last = math.min(#draws.rank, done + most - #found)  -- read all that could be needed at once
    local numbers, ids = {}, {}
    for number = done + 1, last do
      local id = member_of(number)
      if id and not seen[id] then numbers[#numbers + 1], ids[#ids + 1] = number, id end
    end
    for n, chunk in ipairs(chunks_of(ids)) do
      local number = numbers[n]
      if not seen[chunk.id] and tonumber(draws.accept[number]) < chunk.weight then
        seen[chunk.id] = true
        if may_be_sampled(chunk, most_uses) then found[#found + 1] = {chunk = chunk, number = number} end
      end
    end
    done = last
  end
  return found
end
