-- count_starvation: count groups without training value while no others arrive (not a command of its own).
--
-- A group's entry has a mark, 'reason:weight' or '-', as its fourth word after its size and checksum.
local function in_vain(group)
  if not group.stored then return group.where end
  local reason, weight = string.match(group.rest, '^%S+ %S+ %S+ (%S+):(%S+) ')
  return tonumber(weight) == 0 and reason
end

-- Starvation lasts until the next submission with a trainable group. Returns whether there is starvation.
local function count_starvation(new, clock)
  local fruitful, goes_on = 0, false
  for _, group in ipairs(new) do
    if not in_vain(group) then fruitful = group.submission end
  end
  if fruitful > 0 then redis.call('UNLINK', STARVATION) end
  for _, group in ipairs(new) do
    if group.submission > fruitful then
      goes_on = true
      increase(STARVATION, 'sequences', group.size)
      increase(STARVATION, in_vain(group), 1)
    end
  end
  if goes_on then redis.call('HSETNX', STARVATION, 'since_ms', clock) end
  return goes_on
end
