#!lua flags=allow-oom
-- finish_loading: give a loaded curriculum its name, and forget the one that had the name.
--
-- Returns {'loaded'}, also if an earlier call did it; or, with nothing changed: {'gone'}: the load has ended;
-- {'outdated'}: another curriculum has the name; {'crowded'}: the run may not have more curricula.
-- Cost: O(1); Redis frees the values in the background.
--
-- include rows
local RUN = KEYS[1]  -- hash: epoch
local CURRICULA = KEYS[2]  -- hash: curriculum -> its id
local CURRICULA_LOADING = KEYS[3]  -- zset: ids of curricula that are being loaded, by run clock of their last progress
local former_keys = rest(KEYS, 4)  -- hash and zset: keys of the curriculum that has the name, if any
local name = ARGV[1]  -- of the curriculum
local curriculum_id = ARGV[2]  -- of the loaded curriculum
local former_id = ARGV[3]  -- id of the curriculum that has the name, or ''
local most_curricula = ARGV[4]  -- that a run may have
-- include next_number

local id = redis.call('HGET', CURRICULA, name)
if id == curriculum_id then return {'loaded'} end
if not redis.call('ZSCORE', CURRICULA_LOADING, curriculum_id) then return {'gone'} end
if (id or '') ~= former_id then return {'outdated'} end
if not id and redis.call('HLEN', CURRICULA) >= tonumber(most_curricula) then return {'crowded'} end
redis.call('HSET', CURRICULA, name, curriculum_id)
redis.call('ZREM', CURRICULA_LOADING, curriculum_id)
next_number(RUN, 'epoch')
if id then redis.call('UNLINK', unpack(former_keys)) end
return {'loaded'}
