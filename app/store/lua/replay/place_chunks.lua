#!lua flags=allow-oom
-- place_chunks: put chunks among those that may be sampled, or those that are reserved, after their most uses changed.
--
-- KEYS[1] run  hash, and KEYS[2..23], the replay buffer's: replay_keys names them
-- ARGV[1] revision decided on   ARGV[2] most uses of a chunk, or ''   ARGV[3..] chunk ids, none twice
--
-- Returns how many moved; 0 if the configuration changed.
-- Cost: O(n log m), n the ids, m the chunks held.
--
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
if redis.call('HGET', REPLAY, 'revision') ~= ARGV[1] then return 0 end
local moved, most_uses = 0, tonumber(ARGV[2]) or math.huge
for i = 3, #ARGV do
  local chunk = chunk_of(ARGV[i])
  if chunk and is_live(chunk) and place(chunk, most_uses) then
    write(chunk)
    moved = moved + 1
  end
end
write_changes()
if moved > 0 then redis.call('PUBLISH', RUN, 'placed') end
return moved
