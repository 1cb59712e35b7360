-- note_drought: what came in vain, as long as nothing else comes (not a command of its own).
--
-- A group's entry has a mark, 'reason:weight' or '-', as its fourth word after its size and checksum.
local function in_vain(group)
  if not group.stored then return group.where end
  local reason, weight = string.match(group.rest, '^%S+ %S+ %S+ (%S+):(%S+) ')
  return tonumber(weight) == 0 and reason
end

-- A drought lasts from one submission that brings something to train on to the next; returns whether this one is in it.
local function note_drought(new, clock)
  for _, group in ipairs(new) do
    if not in_vain(group) then
      redis.call('UNLINK', DROUGHT)
      return false
    end
  end
  if #new == 0 then return false end
  redis.call('HSETNX', DROUGHT, 'since_ms', clock)
  for _, group in ipairs(new) do
    increase(DROUGHT, 'sequences', group.size)
    increase(DROUGHT, in_vain(group), 1)
  end
  return true
end
