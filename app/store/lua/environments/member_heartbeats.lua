-- member_heartbeats: signs of life of members, and their expiry (not a command of its own).
--
-- Store signs of life. A sign of life does not bring back a member that has left.
local function beat_members(m, seen, names, clock)
  for _, name in ipairs(names) do
    if redis.call('HEXISTS', m.members, name) == 1 then
      redis.call('ZADD', m.heard, clock, name)
      redis.call('HSET', seen, string.match(name, '^%d+'), clock)
    end
  end
end

-- Remove members that were silent since before `clock`, at most 1,000. Returns them.
local function expire_members(m, clock)
  local silent = redis.call('ZRANGEBYSCORE', m.heard, '-inf', string.format('(%.0f', clock), 'LIMIT', 0, 1000)
  for _, name in ipairs(silent) do remove_member(m, name) end
  return silent
end
