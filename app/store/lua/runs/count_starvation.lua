-- count_starvation: count groups without training value while no trainable groups arrive (not a command of its own).
--
-- Starvation lasts until the next submission with a trainable group. Return whether there is starvation.
local function count_starvation(new, clock_ms)
  local trainable, last, goes_on = 0, 0, false
  for _, n in ipairs(new) do
    if submitted.untrainable[n] == '' then trainable = n end
  end
  if trainable > 0 then redis.call('UNLINK', STARVATION) end
  for _, size in ipairs(sizes) do  -- the groups of the last trainable submission do not count
    local first = last + 1
    last = last + size
    if first <= trainable and trainable <= last then trainable = last end
  end
  for _, n in ipairs(new) do
    if n > trainable then
      goes_on = true
      increase(STARVATION, 'sequences', submitted.size[n])
      increase(STARVATION, submitted.untrainable[n], 1)
    end
  end
  if goes_on then redis.call('HSETNX', STARVATION, 'since_ms', clock_ms) end
  return goes_on
end
