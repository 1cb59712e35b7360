#!lua
-- prepare_snapshot: put chunks of a snapshot into its orders. Orders are made before a restoration, not copied.
--
-- Returns 1, or 0 if the snapshot is gone; then nothing has changed.
-- Cost: O(n log m), n the ids, m the chunks of the snapshot.
--
-- include rows
-- include bulk
-- include replay_keys
-- include replay_chunks
local revision = ARGV[1]  -- the revision the snapshot is known by; the keys are the snapshot's
local chunk_ids = rest(ARGV, 2)

if redis.call('HGET', REPLAY, 'revision') ~= revision then return 0 end
for _, id in ipairs(chunk_ids) do rank(chunk_of(id)) end
flush()
return 1
