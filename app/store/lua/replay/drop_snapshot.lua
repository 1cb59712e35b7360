#!lua flags=allow-oom
-- drop_snapshot: delete a snapshot of the replay buffer.
--
-- KEYS[1] run  hash, and KEYS[2..23], the replay buffer's: replay_keys names them
-- KEYS[24] marked_hashes  set of tokens
-- KEYS[25..] hash, zset: the snapshot's place (replay_places) and the name of its marked hash
-- ARGV[1] the revision it is known by   ARGV[2] token of its marked hash
--
-- Returns 1, or 0 if it is not there any more; then nothing has changed.
-- Cost: O(1); values are freed in the background.
--
-- include replay_places
if redis.call('HGET', KEYS[25], 'revision') ~= ARGV[1] then return 0 end
empty_place(25, 25 + PARTS, ARGV[2])
return 1
