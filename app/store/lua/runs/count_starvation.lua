-- count_starvation: count groups without training value while no others arrive (not a command of its own).
--
-- Starvation lasts until the next submission with a trainable group. Returns whether there is starvation.
local function count_starvation(new, clock_ms)
  local fruitful, last, goes_on = 0, 0, false
  for _, n in ipairs(new) do
    if submitted.pointless[n] == '' then fruitful = n end
  end
  if fruitful > 0 then redis.call('UNLINK', STARVATION) end
  for _, size in ipairs(sizes) do  -- the groups of the last fruitful submission do not count
    local first = last + 1
    last = last + size
    if first <= fruitful and fruitful <= last then fruitful = last end
  end
  for _, n in ipairs(new) do
    if n > fruitful then
      goes_on = true
      increase(STARVATION, 'sequences', submitted.size[n])
      increase(STARVATION, submitted.pointless[n], 1)
    end
  end
  if goes_on then redis.call('HSETNX', STARVATION, 'since_ms', clock_ms) end
  return goes_on
end
