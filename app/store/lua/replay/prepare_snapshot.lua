#!lua
-- prepare_snapshot: put chunks of a snapshot into its orders. Orders are made before a restoration, not copied.
--
-- KEYS[1] run  hash, and KEYS[2..23], those that replay_keys names, of the snapshot instead of the buffer
-- ARGV[1] the revision it is known by   ARGV[2..] ids of chunks
--
-- Returns 1, or 0 if the snapshot is gone; then nothing has changed.
-- Cost: O(n log m), n the ids, m the chunks of the snapshot.
--
-- include bulk
-- include replay_keys
-- include replay_chunks
if redis.call('HGET', REPLAY, 'revision') ~= ARGV[1] then return 0 end
for i = 2, #ARGV do rank(chunk_of(ARGV[i])) end
flush()
return 1
