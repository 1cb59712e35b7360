#!lua flags=allow-oom
-- update_priorities: set the priorities and weights of chunks.
--
-- Returns {1, ids of the chunks that exist}, or {0} if the buffer has another revision; then nothing has changed.
-- Cost: O(n log m), n the chunks named, m the chunks held.
--
-- include rows
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
local revision = ARGV[1]  -- that the weights were computed for
-- before: the priority that the chunk must have, or '' for any
local priorities = rows(ARGV, 2, {'chunk_id', 'priority', 'weight', 'before'})

if redis.call('HGET', REPLAY, 'revision') ~= revision then return {0} end
local there, seen = {}, {}
for _, new in ipairs(priorities) do
  local chunk = seen[new.chunk_id] or chunk_of(new.chunk_id)
  if chunk then
    there[#there + 1], seen[chunk.id] = chunk.id, chunk
    if new.before == '' or new.before == chunk.priority then
      local ranked = is_live(chunk) and chunk.weight ~= tonumber(new.weight)
      local counted = ranked and chunk.place == 'sampleable'
      if counted then weigh(chunk, -1) end
      chunk.priority, chunk.weight = new.priority, tonumber(new.weight)
      if counted then weigh(chunk, 1) end
      if ranked then later('ZADD', RANKED_IN[chunk.place].weights, new.weight, chunk.id) end
      write(chunk)
    end
  end
end
write_changes()
return {1, there}
