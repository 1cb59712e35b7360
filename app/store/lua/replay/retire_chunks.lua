#!lua flags=allow-oom
-- retire_chunks: take chunks out of the buffer for a stated reason, or archive them as chunks of a former session.
--
-- Returns how many were retired. It skips chunks that have left, chunks that are archived already, and repeated ids.
-- 0 if the buffer has another revision.
-- Cost: O(n log m), n the ids, m the chunks held.
--
-- include clock
-- include rows
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
-- include replay_retire
local reason = ARGV[1]  -- why they are retired, or 'archived' to keep them for inspection
local revision = ARGV[2]  -- that the decision is based on, or '' for any
local chunk_ids = rest(ARGV, 3)

if revision ~= '' and redis.call('HGET', REPLAY, 'revision') ~= revision then return 0 end
local done, seen = 0, {}
for _, id in ipairs(chunk_ids) do
  local chunk = not seen[id] and chunk_of(id)
  seen[id] = true
  local live = chunk and is_live(chunk)
  if live and reason == 'archived' then
    archive(chunk)
    done = done + 1
  elseif live or chunk and chunk.place == 'archived' and reason ~= 'archived' then
    if reason == 'evicted' then evict(chunk) else retire(chunk, reason) end
    done = done + 1
  end
end
if done > 0 then advance_clock(RUN) end
write_changes()
redis.call('PUBLISH', RUN, 'retired')
return done
