#!lua flags=allow-oom
-- change_lease: move a lease from the state it was seen in to another.
--
-- KEYS[1] lease_states  hash  batch id -> 'state|worker|deliveries|step|relaxed'
-- ARGV[1] batch id   ARGV[2] state seen   ARGV[3] new state
--
-- Returns 1, also if it has the new state already, or 0 if it has another one; then nothing has changed.
-- Cost: O(1).
local state = redis.call('HGET', KEYS[1], ARGV[1])
if state == ARGV[3] then return 1 end
if state ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
