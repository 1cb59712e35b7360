#!lua
-- prepare_snapshot: end the samples of a snapshot, release some of its chunks, and add these to its orders.
--
-- The samples that were held when it was taken are given back. take_snapshot does not copy the orders.
--
-- Returns 1, or 0 if there is no such snapshot; then nothing has changed.
-- Cost: O(n log m), n the ids, m the chunks of the snapshot.
--
-- include clock
-- include rows
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
-- include replay_retire
-- include replay_ends
local revision = ARGV[1]  -- revision that identifies the snapshot; the keys are those of the snapshot
local max_reuse = ARGV[2]  -- most uses of a chunk at the snapshot, or ''
local chunk_ids = rest(ARGV, 3)  -- without repetitions

if redis.call('HGET', REPLAY, 'revision') ~= revision then return 0 end
count('given_back_samples', redis.call('HLEN', SAMPLES))
redis.call('UNLINK', SAMPLES, SAMPLE_STATES, REQUESTS)
for _, chunk in ipairs(chunks_of(chunk_ids)) do
  if chunk.held > 0 then
    count('samples', -chunk.held)
    chunk.held = 1
    release_chunk(chunk, 0, tonumber(max_reuse) or math.huge)
  end
  rank(chunk)
end
write_changes()
return 1
