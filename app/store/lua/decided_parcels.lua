-- decided_parcels: what becomes of groups in admit_groups (not a command of its own).
--
-- What was written for nothing is garbage at once: senders try again and again, and the run may have been removed.
local function outdated(groups)
  advance_clock(RUN)
  for _, group in ipairs(groups) do
    if group.stored then later('ZADD', UNINDEXED, -1, group.id) end
  end
  flush()
  return {'outdated'}
end

local function is_full(run)
  return ARGV[5] ~= '' and run.groups >= tonumber(ARGV[5]) or ARGV[6] ~= '' and run.bytes >= tonumber(ARGV[6])
end

-- What a group is: 'new'; 'written' by the same command before, whose answer was lost; 'repeated' by its sender, and what
-- became of it the first time; or nil, and why it can not be admitted. Somebody may be about to remove what is garbage.
local function outcome_of(group, run)
  local first, outcome, contents = string.match(group.first or '', '^(%S+) (%S+) (%S+)$')
  if first and first ~= group.id then
    if contents ~= group.checksum then return nil, 'exists ' .. group.given end
    return 'repeated ' .. outcome
  end
  if group.recent then return 'written' end
  if is_full(run) then return nil, string.format('full %.0f %.0f', run.groups, run.bytes) end
  if not group.stored then return 'new' end
  local there = tonumber(group.reserved or ARGV[7]) >= 0 and redis.call('STRLEN', group.payload) == tonumber(group.bytes)
  if there then return 'new' end
  return nil, 'outdated'
end

-- What a parcel brings counts for the next; returns whether it brings anything.
local function take_in(groups, first, last, outcomes, run)
  local brings = false
  for n = first, last do
    if outcomes[n] == 'new' then
      brings = true
      if groups[n].stored then run.groups, run.bytes = run.groups + 1, run.bytes + groups[n].bytes end
    end
  end
  return brings
end

-- The outcome of each group, and whether any is new. What is refused of a parcel is refused of all its groups.
local function decided_parcels(groups, run)
  local outcomes, first, any_new = {}, 1, false
  for size in string.gmatch(ARGV[8], '%d+') do
    local last, refusal = first + size - 1, nil
    for n = first, last do
      local outcome, why = outcome_of(groups[n], run)
      outcomes[n], refusal = outcome or '', refusal or why
    end
    for n = first, refusal and last or 0 do outcomes[n] = refusal end
    any_new = take_in(groups, first, last, outcomes, run) or any_new
    first = last + 1
  end
  return outcomes, any_new
end
