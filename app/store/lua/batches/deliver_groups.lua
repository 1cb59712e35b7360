-- deliver_groups: what becomes of the groups of an acknowledged batch in the run (not a command of its own).
--
-- Count the batch as in no policy version yet if its groups name versions and a native trainer acknowledged it.
local function note_trained(run, groups, lease_id, clock)
  for _, group in ipairs(groups) do
    if group.policy_version ~= cjson.null and lease_id ~= '-' then
      redis.call('HINCRBY', run, 'trained_batches', 1)
      redis.call('HSET', run, 'trained_ms', clock)
      return
    end
  end
end

local function deliver_groups(groups, bytes, batch, step, clock, lease_id)
  local RUN, GROUPS, UNREFERENCED, HISTORY, ENDED = KEYS[1], KEYS[2], KEYS[5], KEYS[6], KEYS[7]
  local ids = ids_of(groups)
  for i, entry in ipairs(read('HMGET', GROUPS, ids)) do
    later('HSET', HISTORY, ids[i], string.format('delivered %s %s %.0f %s', batch, step, clock, entry or ''))
    later('ZADD', ENDED, clock + ARGV[2], ids[i])
  end
  if ARGV[1] == '0' then forget_payloads(RUN, GROUPS, UNREFERENCED, ids) end
  flush()
  redis.call('HINCRBY', RUN, 'leased_groups', -#groups)
  redis.call('HINCRBY', RUN, 'leased_bytes', -bytes)
  redis.call('HINCRBY', RUN, 'delivered_groups', #groups)
  note_trained(RUN, groups, lease_id, clock)
end
