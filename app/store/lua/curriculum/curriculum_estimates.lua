-- curriculum_estimates: the estimates of seen items, and their updates by observations (not a command of its own).
--
-- An estimate is six doubles (ema, count, passed, failed, signal, last), then the last mean rewards as floats, oldest
-- first. An observation is 18 doubles: keep, gain and first, for each of ema, passed, failed, signal, last, and the
-- arm. The first observation sets a number to `first`. Each later one sets it to keep * number + gain.
local NUMBERS, STEPS = '<dddddd', '<' .. string.rep('d', 18)
local HISTORY_BYTES = 4 * 50
local NAMES = {'ema', 'passed', 'failed', 'signal', 'last'}

-- Put a seen item into its orders. The same estimate gives the same places, also after a save and restore.
local function add_to_orders(c, key, ema, passed, failed, signal, last)
  local scores = {mean_reward = ema, posterior = (1 + passed) / (2 + passed + failed), signal = signal, last = last}
  for order, score in pairs(scores) do later('ZADD', c[order], score, key) end
end

local function step(steps, n, number)
  if not number then return steps[3 * n] end
  return steps[3 * n - 2] * number + steps[3 * n - 1]
end

-- Return the arm that observations of an item count for: its category, or its bin before these observations.
local function arm_of(c, key, item, bins)
  if bins == 0 then return 'category:' .. item.category end
  local rank = not item.fresh and redis.call('ZRANK', c.mean_reward, key)
  local bin = math.floor(bins / 2)
  if rank then
    local places = redis.call('ZCARD', c.mean_reward)
    bin = math.floor(((places - rank) * bins - 1) / places)
  end
  return string.format('bin:%.0f', bin)
end

-- Update the estimate of a looked up item by an observation; `write_observed` writes it.
local function observe(c, key, packed, bins)
  local item, steps = c.looked_up[key], {struct.unpack(STEPS, packed)}
  if not item.now then
    item.arm, item.now, item.history = arm_of(c, key, item, bins), {count = 0}, ''
    if item.estimates then
      local now = item.now
      now.ema, now.count, now.passed, now.failed, now.signal, now.last = struct.unpack(NUMBERS, item.estimates)
      item.former_ema, item.history = now.ema, string.sub(item.estimates, 49)
    end
  end
  for n, name in ipairs(NAMES) do item.now[name] = step(steps, n, item.now[name]) end
  item.now.count = item.now.count + 1
  item.history = string.sub(item.history .. struct.pack('<f', item.now.last), -HISTORY_BYTES)
  c.arms_now = c.arms_now or {}
  local value = c.arms_now[item.arm] or tonumber(redis.call('HGET', c.arms, item.arm) or nil)
  c.arms_now[item.arm] = step(steps, 6, value)
end
