#!lua
-- put_curriculum: create a curriculum, or change its configuration if no other request changed it since the decision.
--
-- KEYS[1] run         hash  configuration, epoch
-- KEYS[2] curricula   hash  curriculum -> its id
-- KEYS[3] curriculum  hash  configuration, revision, seed
-- ARGV[1] its name   ARGV[2] its id   ARGV[3] revision decided on, or '' to make it   ARGV[4] the new revision, never
-- used before   ARGV[5] configuration, JSON   ARGV[6] most curricula of a run
--
-- Returns {'put'}, also if it was before; or, with nothing changed: {'outdated'}: it was changed, created or deleted;
-- {'missing'}: there is no such run; {'crowded'}: the run has as many as it may.
-- Cost: O(1).
local now, id = redis.call('HGET', KEYS[3], 'revision'), redis.call('HGET', KEYS[2], ARGV[1])
if now == ARGV[4] then return {'put'} end
if redis.call('HEXISTS', KEYS[1], 'config') == 0 then return {'missing'} end
if ARGV[3] == '' and id or ARGV[3] ~= '' and (id ~= ARGV[2] or now ~= ARGV[3]) then return {'outdated'} end
if not id and redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[6]) then return {'crowded'} end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[3], 'config', ARGV[5], 'revision', ARGV[4])
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
return {'put'}
