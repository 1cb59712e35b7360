-- member_beats: signs of life of members, and their end (not a command of its own).
--
-- Note those that ARGV names from `first` on. A member that left meanwhile stays away, although it was heard of before.
local function beat_members(m, seen, first, clock)
  for i = first, #ARGV do
    if redis.call('HEXISTS', m.members, ARGV[i]) == 1 then
      redis.call('ZADD', m.heard, clock, ARGV[i])
      redis.call('HSET', seen, string.match(ARGV[i], '^%d+'), clock)
    end
  end
end

-- Returns those that were silent since before `clock`, at most 1,000; they are gone.
local function expire_members(m, clock)
  local silent = redis.call('ZRANGEBYSCORE', m.heard, '-inf', string.format('(%.0f', clock), 'LIMIT', 0, 1000)
  for _, name in ipairs(silent) do remove_member(m, name) end
  return silent
end
