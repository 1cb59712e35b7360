#!lua flags=allow-oom
-- delete_strays: delete keys with a run's name that nothing in the run names, and mark such payloads for deletion.
--
-- Returns 1, or 0 if the run has keys that name others; then nothing has changed.
-- Cost: O(n log m), n the keys and payloads, m the unreferenced payloads.
--
-- include rows
local LANES = KEYS[1]  -- hash: lane -> groups queued
local BUFFERS = KEYS[2]  -- hash: lane -> groups buffered
local CURRICULA = KEYS[3]  -- hash: curriculum -> its id
local CURRICULA_LOADING = KEYS[4]  -- zset: ids of curricula that are being loaded
local MARKED_HASHES = KEYS[5]  -- set: tokens of marked hashes
local UNREFERENCED = KEYS[6]  -- zset: payloads that are pending (run clock) or marked for deletion (-1)
local STRAYS = rest(KEYS, 7)  -- keys that are named by no other keys than these
local payloads = rest(ARGV, 1)  -- ids; the garbage collection keeps those that something names

if redis.call('EXISTS', LANES, BUFFERS, CURRICULA, CURRICULA_LOADING, MARKED_HASHES) > 0 then return 0 end
for _, key in ipairs(STRAYS) do redis.call('UNLINK', key) end
for _, payload in ipairs(payloads) do redis.call('ZADD', UNREFERENCED, 'NX', -1, payload) end
return 1
