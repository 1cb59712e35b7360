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

-- Retire a chunk because a new session began, and keep the chunk for inspection.
local function archive(chunk)
  note_retired(chunk, 'old_session')
  take_out(chunk)
  put(chunk, 'archived')
  write(chunk)
end

-- Retire a chunk. While samples hold the chunk, its entry and its payloads stay.
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

-- Evict a chunk to make room. An archived chunk was retired when its session ended, and is kept only for inspection.
local function evict(chunk) retire(chunk, chunk.place == 'archived' and 'old_session' or 'evicted') end
