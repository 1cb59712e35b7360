#!lua flags=allow-oom
-- update_priorities: give chunks other priorities, and so other weights.
--
-- KEYS[1] run  hash, and KEYS[2..18], the replay buffer's: replay_keys names them
-- ARGV[1] revision the weights were worked out on
-- ARGV per chunk from 2 on: its id, its priority, its weight, and the priority it must have had, or '' for any
--
-- Returns {1, ids of those that are there}, or {0} if the configuration moved on; then nothing has changed.
-- Cost: O(n log m), n the chunks named, m the chunks held.
--
-- include replay_keys
-- include replay_chunks
if redis.call('HGET', REPLAY, 'revision') ~= ARGV[1] then return {0} end
local there = {}
for i = 2, #ARGV, 4 do
  local chunk = chunk_of(ARGV[i])
  if chunk then
    there[#there + 1] = chunk.id
    if ARGV[i + 3] == '' or ARGV[i + 3] == chunk.priority then
      local before = chunk.weight
      chunk.priority, chunk.weight = ARGV[i + 1], tonumber(ARGV[i + 2])
      if chunk.place == 'sampleable' and chunk.weight ~= before then
        redis.call('ZADD', WEIGHTS, ARGV[i + 2], chunk.id)
        weigh(before, -1)
        weigh(chunk.weight, 1)
      end
      write(chunk)
    end
  end
end
return {1, there}
