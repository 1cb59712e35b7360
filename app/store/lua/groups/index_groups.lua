-- index_groups: write the groups that are new (not a command of its own).
--
local function push(list, first, second)
  local n = #list
  list[n + 1], list[n + 2] = first, second
end

-- Index a group that is stored. Its place is behind all earlier groups.
local function index_stored(n, run)
  local id, where, lane = submitted.group_id[n], submitted.where[n], submitted.lane[n]
  if submitted.policy_version[n] ~= '-' then later('ZADD', VERSIONS, submitted.policy_version[n], id) end
  if pending_since[n] then later('ZREM', UNREFERENCED, id) end
  increase(where == 'queued' and LANES or BUFFERS, lane, 1)
  local groups, bytes = where .. '_groups', where .. '_bytes'
  run[groups], run[bytes] = run[groups] + 1, run[bytes] + submitted.payload_bytes[n]
  run.arrivals = run.arrivals + 1
  later('ZADD', places.waiting[n], run.arrivals, id)
  if where == 'queued' and not in_lane[n] then order_new(LANE_HEADS, lane, run.arrivals) end
end

-- Mark the payload of a group that is not new and not held: it has left, or its first submission has another payload.
-- The garbage collection keeps that of the latest group.
local function mark_unused_payload(n)
  local id = submitted.group_id[n]
  local held = redis.call('HEXISTS', GROUPS, id) == 1
  if is_stored(n) and not held then later('ZADD', UNREFERENCED, -1, id) end
end

-- Index the new groups, and return their numbers. The last stored one becomes the latest group of the run. If the
-- former latest group has left, mark its payload.
local function index_groups(outcomes, run)
  local new, latest, clock_ms = {}, nil, string.format('%.0f', run.clock_ms)
  local admitted, dropped, entries = {}, {}, {}
  local left = redis.call('HLEN', KNOWN) - redis.call('HLEN', GROUPS)
  for n, id in ipairs(submitted.group_id) do
    if outcomes[n] == 'new' then
      local entry, where = clock_ms .. ' ' .. submitted.entry[n], submitted.where[n]
      new[#new + 1] = n
      increase(LEDGER, 'generated:' .. submitted.environment[n], submitted.tokens[n])
      if is_stored(n) then
        latest = id
        push(entries, id, entry)
        push(admitted, names[n], id)
        index_stored(n, run)
      else
        local dropped_as = where .. ':' .. submitted.environment[n]
        increase(DROPPED, dropped_as, 1)
        increase(LEDGER, dropped_as, submitted.tokens[n])
        if left + #dropped < tonumber(most_remembered) then
          dropped[#dropped + 1] = names[n]
          push(admitted, names[n], id .. ' ' .. where .. ' - - ' .. entry)
        end
      end
    else
      mark_unused_payload(n)
    end
  end
  local latest_left = latest and run.latest and redis.call('HEXISTS', GROUPS, run.latest) == 0
  if latest_left then later('ZADD', UNREFERENCED, -1, run.latest) end
  run.latest, run.accepted_groups = latest or run.latest, run.accepted_groups + #new
  write_list('HSET', KNOWN, admitted)
  note_left(LEFT, dropped, run.clock_ms)
  write_list('HSET', GROUPS, entries)
  return new
end
