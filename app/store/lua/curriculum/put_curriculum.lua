#!lua
-- put_curriculum: create a curriculum, or change its configuration if no other request changed it since the decision.
--
-- Returns {'put'}, also if an earlier call did it; or, with nothing changed: {'outdated'}: another request changed,
-- created or deleted it; {'missing'}: there is no such run; {'crowded'}: the run may not have more curricula.
-- Cost: O(1).
--
local RUN = KEYS[1]  -- hash: configuration, epoch
local CURRICULA = KEYS[2]  -- hash: curriculum -> its id
local CURRICULUM = KEYS[3]  -- hash: configuration, revision, seed
local name = ARGV[1]  -- of the curriculum
local curriculum_id = ARGV[2]
local old = ARGV[3]  -- revision that the decision is based on, or '' to create it
local new = ARGV[4]  -- the new revision, never used before
local config = ARGV[5]  -- JSON
local most_curricula = ARGV[6]  -- that a run may have
-- include next_number

local now, id = redis.call('HGET', CURRICULUM, 'revision'), redis.call('HGET', CURRICULA, name)
if now == new then return {'put'} end
if redis.call('HEXISTS', RUN, 'config') == 0 then return {'missing'} end
if old == '' and id or old ~= '' and (id ~= curriculum_id or now ~= old) then return {'outdated'} end
if not id and redis.call('HLEN', CURRICULA) >= tonumber(most_curricula) then return {'crowded'} end
redis.call('HSET', CURRICULA, name, curriculum_id)
redis.call('HSET', CURRICULUM, 'config', config, 'revision', new)
next_number(RUN, 'epoch')
return {'put'}
