-- decide_submissions: decide the outcome of each group that is to be admitted (not a command of its own).
--
local function is_full(groups, bytes)
  return max_groups ~= '' and groups >= tonumber(max_groups) or max_bytes ~= '' and bytes >= tonumber(max_bytes)
end

-- Return whether an earlier call of the same command admitted a group, and its answer was lost.
local function is_written(n) return known[n] and string.match(known[n], '^%S+') == submitted.group_id[n] end

-- Return the first outcome of a group that its sender repeats, and the checksum of its contents; nil if the run has
-- forgotten it. The run does not forget a group that it holds.
local function first_outcome(n, clock_ms)
  local left = parse_left(known[n])
  local entry = redis.call('HGET', GROUPS, left and left.id or known[n])
  if entry then return 'queued', entry_word(entry, 'checksum') end
  if not left or entry_word(left.entry, 'accepted_ms') + dedup_ms <= clock_ms then return nil end
  return left.left_ms and 'queued' or left.reason, entry_word(left.entry, 'checksum')
end

-- Return 'new'; 'written' if an earlier call of the same command stored the group and its answer was lost; 'repeated'
-- and the first outcome if its sender repeats it; or nil, and why it cannot be admitted. A marked payload may be
-- deleted at any time.
local function outcome_of(n, groups, bytes, clock_ms)
  if is_written(n) then return 'written' end
  if known[n] then
    local outcome, contents = first_outcome(n, clock_ms)
    if outcome and contents ~= submitted.checksum[n] then return nil, 'exists ' .. submitted.given_id[n] end
    if outcome then return 'repeated ' .. outcome end
  end
  if is_full(groups, bytes) then return nil, string.format('full %.0f %.0f', groups, bytes) end
  if not is_stored(n) then return 'new' end
  local there = tonumber(pending_since[n] or score_if_absent) >= 0
    and redis.call('STRLEN', places.payload[n]) == tonumber(submitted.payload_bytes[n])
  if there then return 'new' end
  return nil, 'outdated'
end

-- Return whether an earlier call stored any group of a submission. Then skip the epoch check: it passed in that call.
local function any_is_written(first, last)
  for n = first, last do
    if is_written(n) then return true end
  end
  return false
end

-- Return the outcome of each group, and the outcomes by submission. If one group of a submission is refused, all of it
-- is refused. If the run has changed, only submissions that an earlier call stored are accepted. Groups admitted here
-- count towards the limits for the next ones.
local function decide_submissions(run)
  local has_changed = run.epoch ~= epoch or policy_version ~= '' and run.policy_version ~= policy_version
  local groups, bytes = run.queued_groups + run.buffered_groups, run.queued_bytes + run.buffered_bytes
  local outcomes, results = {}, {}
  for i, size in ipairs(sizes) do
    local first, last = #outcomes + 1, #outcomes + size
    local refusal, own = has_changed and not any_is_written(first, last) and 'outdated' or nil, {}
    for n = first, last do
      local outcome, why = outcome_of(n, groups, bytes, run.clock_ms)
      outcomes[n], refusal = outcome or why, refusal or why
    end
    refusal = refusal or count_for_account(i, first, last, outcomes)
    for n = first, last do
      outcomes[n] = refusal or outcomes[n]
      own[n - first + 1] = outcomes[n]
      if outcomes[n] == 'new' and is_stored(n) then groups, bytes = groups + 1, bytes + submitted.payload_bytes[n] end
    end
    results[i] = own
  end
  return outcomes, results
end
