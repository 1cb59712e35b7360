-- expire_members: remove members that were silent for too long (not a command of its own).
--
-- Remove at most 1,000 members whose last sign of life is before `clock`, and return them.
local function expire_members(m, clock)
  local silent = redis.call('ZRANGEBYSCORE', m.heard, '-inf', string.format('(%.0f', clock), 'LIMIT', 0, 1000)
  for _, name in ipairs(silent) do remove_member(m, name) end
  return silent
end
