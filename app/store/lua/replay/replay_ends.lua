-- replay_ends: end samples and release their chunks (not a command of its own).
--
local function release_chunk(chunk, used, most_uses)
  chunk.uses, chunk.held = chunk.uses + used, chunk.held - 1
  if not is_live(chunk) then
    count('retired_uses', used)
    if chunk.held > 0 or chunk.place == 'archived' then write(chunk) else forget_chunk(chunk) end
  elseif chunk.uses >= most_uses then
    retire(chunk, 'used_up')
  else
    -- If the chunk moved, `place` has already queued its ranks. Do not queue a second ZADD: queued ZADD and ZREM of one
    -- member run in no fixed order.
    local moved = place(chunk, most_uses)
    if used > 0 and not moved then later('ZADD', RANKED_IN[chunk.place].uses, -chunk.uses, chunk.id) end
    write(chunk)
  end
end

-- Release the chunks of a sample that ends, as note_sample wrote them. If it was acknowledged, their uses count.
local function release_chunks(chunks, outcome, most_uses)
  local used = outcome == 'acknowledged' and 1 or 0
  local ids = {}
  for n, entry in ipairs(chunks) do
    local chunk_id = unpack(entry)
    ids[n] = chunk_id
  end
  for _, chunk in ipairs(chunks_of(ids)) do release_chunk(chunk, used, most_uses) end
  if used == 0 then count('samples', -#chunks) end
  count(outcome .. '_samples', 1)
  write_changes()
end

-- Remember for a while how a sample ended.
local function note_end(sample, outcome, lease, memory_ms)
  local clock, name = advance_clock(RUN), 'sample:' .. sample
  redis.call('HSET', HISTORY, name, string.format('%s %s 0 %.0f', outcome, lease, clock))
  redis.call('ZADD', ENDED, string.format('%.0f', clock + memory_ms), name)
end
