-- deliver_groups: what becomes of the groups of an acknowledged batch in the run (not a command of its own).
--
local function deliver_groups(groups, bytes, batch, step, clock)
  local RUN, GROUPS, UNINDEXED, HISTORY, ENDED = KEYS[1], KEYS[2], KEYS[5], KEYS[6], KEYS[7]
  for _, group in ipairs(groups) do
    local entry = redis.call('HGET', GROUPS, group.group_id) or ''
    redis.call('HSET', HISTORY, group.group_id, string.format('delivered %s %s %.0f %s', batch, step, clock, entry))
    redis.call('ZADD', ENDED, clock + ARGV[2], group.group_id)
    if ARGV[1] == '0' then forget_payload(RUN, GROUPS, UNINDEXED, group.group_id) end
  end
  redis.call('HINCRBY', RUN, 'leased_groups', -#groups)
  redis.call('HINCRBY', RUN, 'leased_bytes', -bytes)
  redis.call('HINCRBY', RUN, 'delivered_groups', #groups)
end
