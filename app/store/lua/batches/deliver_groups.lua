-- deliver_groups: count the groups of an acknowledged batch as delivered (not a command of its own).
--
-- Count a trained batch that no policy version includes yet, if a native trainer acknowledged it and a group names a
-- version. A batch without versions only ends the count of a version that was set before it.
local function note_trained(run, groups, lease_id, clock)
  if lease_id == '-' then return end
  for _, group in ipairs(groups) do
    if group.policy_version ~= cjson.null then
      redis.call('HINCRBY', run, 'trained_batches', 1)
      redis.call('HSET', run, 'trained_ms', clock)
      return
    end
  end
  if tonumber(redis.call('HGET', run, 'trained_batches') or 0) < 0 then
    redis.call('HINCRBY', run, 'trained_batches', 1)
  end
end

local function deliver_groups(groups, bytes, batch, clock)
  local ids = ids_of(groups)
  remember_ends_of(ids, '-', batch.step, clock)
  if keep == '0' then forget_payloads(RUN, GROUPS, UNREFERENCED, ids) end
  flush()
  count_tokens(groups, {leased = -1, trained = 1})
  redis.call('HINCRBY', RUN, 'leased_groups', -#groups)
  redis.call('HINCRBY', RUN, 'leased_bytes', -bytes)
  redis.call('HINCRBY', RUN, 'delivered_groups', #groups)
  note_trained(RUN, groups, batch.lease_id, clock)
end
