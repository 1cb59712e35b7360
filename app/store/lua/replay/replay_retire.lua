-- replay_retire: take fragments and chunks out of the buffer (not a command of its own).
--
local function forget_fragment(id)
  later('HDEL', FRAGMENTS, id)
  later('ZADD', UNREFERENCED, -1, id)
end

local function forget_chunk(chunk)
  for id in string.gmatch(chunk.fragment_ids, '[^,]+') do forget_fragment(id) end
  later('HDEL', CHUNKS, chunk.id)
end

local function note_retired(chunk, reason)
  count('retired_chunks', 1)
  count('retired_uses', chunk.uses)
  count('retired:' .. reason, 1)
end

-- Keep for inspection what a new session has retired.
local function archive(chunk)
  note_retired(chunk, 'old_session')
  take_out(chunk)
  put(chunk, 'archived')
  write(chunk)
end

-- What samples hold of it stays until they end.
local function retire(chunk, reason)
  if chunk.place ~= 'archived' then note_retired(chunk, reason) end
  take_out(chunk)
  chunk.place = reason
  count('chunks', -1)
  count('chunk_bytes', -chunk.bytes)
  count('chunk_fragments', -chunk.fragments)
  count('retired_fragments', chunk.fragments)
  if chunk.held > 0 then write(chunk) else forget_chunk(chunk) end
end

-- Evict a chunk to make room. An archived chunk was retired by its session's end and kept only for inspection.
local function evict(chunk) retire(chunk, chunk.place == 'archived' and 'old_session' or 'evicted') end
