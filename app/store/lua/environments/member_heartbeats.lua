-- member_heartbeats: signs of life of members, and their expiry (not a command of its own).
--
-- Store those in ARGV from `first` on. A member that has left stays away, even if it was heard of before.
local function beat_members(m, seen, first, clock)
  for i = first, #ARGV do
    if redis.call('HEXISTS', m.members, ARGV[i]) == 1 then
      redis.call('ZADD', m.heard, clock, ARGV[i])
      redis.call('HSET', seen, string.match(ARGV[i], '^%d+'), clock)
    end
  end
end

-- Remove members that were silent since before `clock`, at most 1,000. Returns them.
local function expire_members(m, clock)
  local silent = redis.call('ZRANGEBYSCORE', m.heard, '-inf', string.format('(%.0f', clock), 'LIMIT', 0, 1000)
  for _, name in ipairs(silent) do remove_member(m, name) end
  return silent
end
