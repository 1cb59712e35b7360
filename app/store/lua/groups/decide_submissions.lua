-- decide_submissions: decide the outcome of each group in admit_groups (not a command of its own).
--
local function is_full(run)
  return ARGV[5] ~= '' and run.groups >= tonumber(ARGV[5]) or ARGV[6] ~= '' and run.bytes >= tonumber(ARGV[6])
end

-- Return 'new'; 'written' if an earlier call of the same command stored the group and its answer was lost; 'repeated'
-- and the first outcome if its sender repeats it; or nil, and why it cannot be admitted. A marked payload may be
-- deleted at any time.
local function outcome_of(group, run)
  local first, outcome, contents = string.match(group.first or '', '^(%S+) (%S+) (%S+)$')
  if first and first ~= group.id then
    if contents ~= group.checksum then return nil, 'exists ' .. group.given end
    return 'repeated ' .. outcome
  end
  if group.recent then return 'written' end
  if is_full(run) then return nil, string.format('full %.0f %.0f', run.groups, run.bytes) end
  if not group.stored then return 'new' end
  local there = tonumber(group.reserved or ARGV[7]) >= 0
    and redis.call('STRLEN', group.payload) == tonumber(group.bytes)
  if there then return 'new' end
  return nil, 'outdated'
end

-- Return the outcome of each group, and the outcomes by submission. If one group of a submission is refused, all of it
-- is refused. If the run has changed, only groups that were written before are accepted. Groups admitted here count
-- towards the limits for the next ones.
local function decide_submissions(groups, run, moved_on)
  local outcomes, results = {}, {}
  for i, size in ipairs(SIZES) do
    local first, last = #outcomes + 1, #outcomes + size
    local refusal = moved_on and not is_written(groups, first, last) and 'outdated' or nil
    for n = first, last do
      local outcome, why = outcome_of(groups[n], run)
      outcomes[n], refusal, groups[n].submission = outcome or why, refusal or why, i
    end
    results[i] = {}
    for n = first, last do
      outcomes[n] = refusal or outcomes[n]
      results[i][n - first + 1] = outcomes[n]
      local comes_in = outcomes[n] == 'new' and groups[n].stored
      if comes_in then run.groups, run.bytes = run.groups + 1, run.bytes + groups[n].bytes end
    end
  end
  return outcomes, results
end
