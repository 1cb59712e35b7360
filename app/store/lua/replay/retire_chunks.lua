#!lua flags=allow-oom
-- retire_chunks: take chunks out of the buffer for a stated reason, or set them aside as those of a former session.
--
-- KEYS[1] run  hash, and KEYS[2..23], the replay buffer's: replay_keys names them
-- ARGV[1] why, or 'archived' to keep them for inspection   ARGV[2] revision decided on, or '' for any
-- ARGV[3..] chunk ids
--
-- Returns how many were retired. Chunks that left or were archived already, and repeated ids, are skipped. 0 if the
-- configuration changed, or another buffer replaced this one.
-- Cost: O(n log m), n the ids, m the chunks held.
--
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
-- include replay_retire
if ARGV[2] ~= '' and redis.call('HGET', REPLAY, 'revision') ~= ARGV[2] then return 0 end
local done, seen = 0, {}
for i = 3, #ARGV do
  local chunk = not seen[ARGV[i]] and chunk_of(ARGV[i])
  seen[ARGV[i]] = true
  local live = chunk and is_live(chunk)
  if live and ARGV[1] == 'archived' then
    archive(chunk)
    done = done + 1
  elseif live or chunk and chunk.place == 'archived' and ARGV[1] ~= 'archived' then
    if ARGV[1] == 'evicted' then evict(chunk) else retire(chunk, ARGV[1]) end
    done = done + 1
  end
end
write_changes()
redis.call('PUBLISH', RUN, 'retired')
return done
