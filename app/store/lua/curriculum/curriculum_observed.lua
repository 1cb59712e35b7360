-- curriculum_observed: write the items that observations updated (not a command of its own).
--
local function pack_numbers(now)
  return struct.pack(NUMBERS, now.ema, now.count, now.passed, now.failed, now.signal, now.last)
end

-- Make an item a seen one. If it is in flight, its score in `drawn` is the number of the sample that handed it out.
-- Otherwise it is 0: no sample handed it out, or its time in flight has ended, and the number with it.
local function mark_seen(c, key, item)
  if not item.fresh then later('ZREM', item.prior == '-' and c.unseen or c.prior_only, key) end
  if item.prior ~= '-' and not item.fresh then item.former_ema = item.prior end
  local holder = redis.call('HGET', c.holders, key)
  later('ZADD', c.drawn, holder and string.match(holder, '^%d+') or 0, key)
end

-- Write the estimates and places of observed items, and end their time in flight.
local function write_observed(c)
  for key, item in pairs(c.looked_up) do
    local now = item.now
    if now then
      if not item.estimates then mark_seen(c, key, item) end
      increase(c.curriculum, 'mean_reward', in_units(now.ema) - in_units(item.former_ema or 0))
      item.estimates = pack_numbers(now)
      later('HSET', c.estimates, key, item.estimates .. item.history)
      place(c, key, item)
      add_to_orders(c, key, now.ema, now.passed, now.failed, now.signal, now.last)
      later('ZREM', c.in_flight, key)
      later('HDEL', c.holders, key)
    end
  end
  for arm, value in pairs(c.arms_now or {}) do later('HSET', c.arms, arm, string.format('%.17g', value)) end
end
