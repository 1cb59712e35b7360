-- record_drops: add events about newly dropped groups, for tick (not a command of its own).
--
-- There is one event for each reason, at most every 5 s. Each group is in one event: if an environment is forgotten,
-- its counts in DROPPED_TOLD move together with those in DROPPED (`forget_environments`).
--
-- Return the number of dropped groups that no event has yet.
local function record_drops(clock)
  local accepted, queued, buffered, leased, delivered, drops_told, drops_told_ms = unpack(redis.call('HMGET', RUN,
    'accepted_groups', 'queued_groups', 'buffered_groups', 'leased_groups', 'delivered_groups', 'drops_told',
    'drops_told_ms'))
  local dropped = (accepted or 0) - (queued or 0) - (buffered or 0) - (leased or 0) - (delivered or 0)
  local unreported = dropped - (drops_told or 0)
  if unreported == 0 or clock - (drops_told_ms or -5000) < 5000 then return unreported end
  local reported, reasons = {}, {}
  local before, now = redis.call('HGETALL', DROPPED_TOLD), redis.call('HGETALL', DROPPED)
  for i = 1, #before, 2 do reported[before[i]] = before[i + 1] end
  for i = 1, #now, 2 do
    local new = now[i + 1] - (reported[now[i]] or 0)
    if new > 0 then
      local reason, environment = string.match(now[i], '^(.-):(.*)$')
      local event = reasons[reason] or {kind = 'groups dropped', reason = reason, groups = 0, environments = {}}
      event.groups, event.environments[environment == '-' and 'none' or environment] = event.groups + new, new
      reasons[reason] = event
      redis.call('HSET', DROPPED_TOLD, now[i], now[i + 1])
    end
  end
  for _, event in pairs(reasons) do
    redis.call('XADD', EVENTS, 'MAXLEN', '~', most_events, '*', 'event', cjson.encode(event))
  end
  redis.call('HSET', RUN, 'drops_told', dropped, 'drops_told_ms', clock)
  return 0
end
