#!lua flags=allow-oom
-- update_priorities: set the priorities and weights of chunks.
--
-- KEYS[1] run  hash, and KEYS[2..23], the replay buffer's: replay_keys names them
-- ARGV[1] revision the weights were worked out on
-- ARGV per chunk from 2 on: its id, its priority, its weight, and the priority it must have had, or '' for any
--
-- Returns {1, ids of those that are there}, or {0} if the configuration changed; then nothing has changed.
-- Cost: O(n log m), n the chunks named, m the chunks held.
--
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
if redis.call('HGET', REPLAY, 'revision') ~= ARGV[1] then return {0} end
local there, seen = {}, {}
for i = 2, #ARGV, 4 do
  local chunk = seen[ARGV[i]] or chunk_of(ARGV[i])
  if chunk then
    there[#there + 1], seen[chunk.id] = chunk.id, chunk
    if ARGV[i + 3] == '' or ARGV[i + 3] == chunk.priority then
      local ranked = is_live(chunk) and chunk.weight ~= tonumber(ARGV[i + 2])
      local counted = ranked and chunk.place == 'sampleable'
      if counted then weigh(chunk, -1) end
      chunk.priority, chunk.weight = ARGV[i + 1], tonumber(ARGV[i + 2])
      if counted then weigh(chunk, 1) end
      if ranked then later('ZADD', RANKED_IN[chunk.place].weights, ARGV[i + 2], chunk.id) end
      write(chunk)
    end
  end
end
write_changes()
return {1, there}
