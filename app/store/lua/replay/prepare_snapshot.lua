#!lua
-- prepare_snapshot: add chunks of a snapshot to its orders. take_snapshot does not copy the orders.
--
-- Returns 1, or 0 if there is no such snapshot; then nothing has changed.
-- Cost: O(n log m), n the ids, m the chunks of the snapshot.
--
-- include rows
-- include bulk
-- include replay_keys
-- include replay_chunks
local revision = ARGV[1]  -- revision that identifies the snapshot; the keys are those of the snapshot
local chunk_ids = rest(ARGV, 2)

if redis.call('HGET', REPLAY, 'revision') ~= revision then return 0 end
for _, id in ipairs(chunk_ids) do rank(chunk_of(id)) end
flush()
return 1
