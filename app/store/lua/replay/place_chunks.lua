#!lua flags=allow-oom
-- place_chunks: move chunks between the sampleable and the reserved ones, after the limit of uses has changed.
--
-- Returns how many moved; 0 if the buffer has another revision.
-- Cost: O(n log m), n the ids, m the chunks held.
--
-- include rows
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
local revision = ARGV[1]  -- that the decision is based on
local max_reuse = ARGV[2]  -- most uses of a chunk, or ''
local chunk_ids = rest(ARGV, 3)  -- without repetitions

if redis.call('HGET', REPLAY, 'revision') ~= revision then return 0 end
local moved, most_uses = 0, tonumber(max_reuse) or math.huge
for _, id in ipairs(chunk_ids) do
  local chunk = chunk_of(id)
  if chunk and is_live(chunk) and place(chunk, most_uses) then
    write(chunk)
    moved = moved + 1
  end
end
write_changes()
if moved > 0 then redis.call('PUBLISH', RUN, 'placed') end
return moved
