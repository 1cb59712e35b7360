#!lua flags=no-writes
-- find_spread_chunks: read the chunks at ranks of the orders of insertion; nothing is changed.
--
-- Returns one text with a line 'uses priority version' for each chunk. Ranks that have no chunk give no line.
-- Cost: O(n log m), n the ranks, m the chunks held.
--
-- include bulk
-- include rows
-- include replay_keys
-- include replay_chunks
local ranks = rest(ARGV, 1)  -- from 0; those of reserved chunks follow those of sampleable ones

local sampleable, keys = redis.call('ZCARD', ORDER), {}
for _, text in ipairs(ranks) do
  local order, rank = ORDER, tonumber(text)
  if rank >= sampleable then order, rank = RESERVED_ORDER, rank - sampleable end
  keys[#keys + 1] = redis.call('ZRANGE', order, rank, rank)[1]
end
local found = {}
for n, entry in ipairs(read('HMGET', CHUNKS, keys)) do
  if entry then
    local chunk = parse_chunk(keys[n], entry)
    found[#found + 1] = string.format('%.0f %s %s', chunk.uses, chunk.priority, chunk.version)
  end
end
return table.concat(found, '\n')
