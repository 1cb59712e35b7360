#!lua flags=allow-oom
-- change_lease: move a lease from the state it was seen in to another.
--
-- KEYS[1] run           hash  names the channel that those who wait listen to
-- KEYS[2] lease_states  hash  batch id -> JSON of its lease
-- ARGV[1] batch id   ARGV[2] lease seen   ARGV[3] lease from now on   ARGV[4] 1 to wake those who wait, else 0
--
-- Returns 1, also if it has the new state already, or 0 if it has another one; then nothing has changed.
-- Cost: O(1).
local state = redis.call('HGET', KEYS[2], ARGV[1])
if state == ARGV[3] then return 1 end
if state ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
if ARGV[4] == '1' then redis.call('PUBLISH', KEYS[1], 'returned') end
return 1
