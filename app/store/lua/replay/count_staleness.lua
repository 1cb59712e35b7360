-- count_staleness: count how stale chunks are when they are sampled (not a command of its own).
--
-- The total 'staleness:BOUND' counts chunks stale by at most BOUND versions and more than the previous bound. Bounds
-- are 0, 1, 2, 4 and so on to 256, then 'more'. The sum of all staleness is a float: it may need more than 64 bits.
local function count_staleness(chunks, version)
  local sum, counts = 0, {}
  for _, chunk in ipairs(chunks) do
    local staleness, bound = math.max(0, version - chunk.version), 0
    while bound < staleness and bound < 256 do bound = math.max(1, 2 * bound) end
    if bound < staleness then bound = 'more' end
    counts[bound] = (counts[bound] or 0) + 1
    sum = sum + staleness
  end
  for bound, chunks_of in pairs(counts) do count('staleness:' .. bound, chunks_of) end
  count('sampled_chunks', #chunks)
  redis.call('HINCRBYFLOAT', REPLAY, 'sampled_staleness', string.format('%.0f', sum))
end
