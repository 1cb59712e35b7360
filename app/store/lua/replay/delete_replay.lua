#!lua flags=allow-oom
-- delete_replay: remove the replay buffer with its contents and snapshots, and mark its payloads for deletion.
--
-- KEYS[1] run  hash, and KEYS[2..23], the replay buffer's: replay_keys names them
-- KEYS[24] marked_hashes  set of tokens   KEYS[25] hash, its marked hash
-- KEYS[26..] hash, zset: places of snapshots (replay_places), each with the name of its marked hash
-- ARGV[1] revision decided on   ARGV[2] token of the marked hash of the buffer
-- ARGV[3..] tokens of the marked hashes of the snapshots, in order
--
-- Returns 1, also if there is none, or 0 if the buffer changed; then nothing has changed.
-- Cost: O(1); values are freed in the background.
--
-- include replay_keys
-- include replay_places
local revision = redis.call('HGET', REPLAY, 'revision')
if not revision then return 1 end
if revision ~= ARGV[1] then return 0 end
empty_place(2, 25, ARGV[2])
for i = 3, #ARGV do
  local first = 26 + (PARTS + 1) * (i - 3)
  empty_place(first, first + PARTS, ARGV[i])
end
redis.call('PUBLISH', RUN, 'replay deleted')
return 1
