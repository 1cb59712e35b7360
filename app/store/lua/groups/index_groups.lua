-- index_groups: write all groups together in admit_groups (not a command of its own).
--
-- Stored groups get places behind all earlier ones. The last one is the latest group of the run.
local function place_groups(groups, run)
  if #groups == 0 then return end
  for i, group in ipairs(groups) do later('ZADD', group.place, run.arrivals + i, group.id) end
  increase(RUN, 'arrivals', #groups)
  local left = run.latest and redis.call('HEXISTS', GROUPS, run.latest) == 0
  if left then later('ZADD', UNREFERENCED, -1, run.latest) end
  later('HSET', RUN, 'latest', groups[#groups].id)
end

-- Mark the payload of a group that is not new: the group has left since, or the sender's group has another payload.
local function pass_over(group, run)
  local held = group.id == run.latest or redis.call('HEXISTS', GROUPS, group.id) == 1
  if group.stored and not held then later('ZADD', UNREFERENCED, -1, group.id) end
end

local function note_senders(senders, clock)
  for environment, own in pairs(senders) do
    local before = string.match(redis.call('HGET', SENT, environment) or '0', '%d+$')
    later('HSET', SEEN, environment, clock)
    later('HSET', SENT, environment, string.format('%.0f %s %.0f', clock, own.size, before + own.sequences))
  end
end

-- Returns whether any group is new, and whether there is starvation.
local function index_groups(groups, outcomes, run, clock)
  local new, stored, senders = {}, {}, {}
  for n, group in ipairs(groups) do
    if outcomes[n] == 'new' then
      index_group(group, clock)
      new[#new + 1] = group
      if group.stored then stored[#stored + 1] = group end
      local own = senders[group.environment] or {sequences = 0}
      senders[group.environment] = {size = group.size, sequences = own.sequences + (group.stored and group.size or 0)}
    else
      pass_over(group, run)
    end
  end
  senders['-'] = nil
  place_groups(stored, run)
  note_senders(senders, clock)
  return #new > 0, count_starvation(new, clock)
end
