#!lua flags=allow-oom
-- finish_loading: give a loaded curriculum its name, and forget the one that had the name.
--
-- KEYS[1] run                hash  epoch
-- KEYS[2] curricula          hash  curriculum -> its id
-- KEYS[3] curricula_loading  zset  ids of curricula that are being loaded, by the run clock at their last progress
-- KEYS[4..] the keys of the one that has the name, if any: hash and zset
-- ARGV[1] the name   ARGV[2] the loaded id   ARGV[3] id that has the name, or ''   ARGV[4] most curricula of a run
--
-- Returns {'loaded'}, also if it was before; or, with nothing changed: {'gone'}: the load has ended; {'outdated'}:
-- another has the name by now; {'crowded'}: the run has as many as it may.
-- Cost: O(1); values are freed in the background.
local id = redis.call('HGET', KEYS[2], ARGV[1])
if id == ARGV[2] then return {'loaded'} end
if not redis.call('ZSCORE', KEYS[3], ARGV[2]) then return {'gone'} end
if (id or '') ~= ARGV[3] then return {'outdated'} end
if not id and redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[4]) then return {'crowded'} end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('ZREM', KEYS[3], ARGV[2])
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
if id then redis.call('UNLINK', unpack(KEYS, 4)) end
return {'loaded'}
