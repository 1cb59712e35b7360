-- drop_waiting: drop groups that wait, for drop_groups and drop_versions (not a command of its own).
--
local dropped, forgotten = 0, {}  -- how many groups; ids of those that have an entry
local remembered, given_ids, replayed = {}, {}, {}  -- of these groups

-- Drop groups that all wait in a place: 'queued' or 'buffered'. `leaving` has words of the entries of all groups.
local function drop_from(place, key, counts, lane, numbers, leaving)
  if #numbers == 0 then return end
  local ids, known, bytes, tokens = {}, 0, 0, 0
  for i, n in ipairs(numbers) do
    ids[i] = group_ids[n]
    if leaving.remembered[n] then
      local last = #forgotten + 1
      forgotten[last], replayed[last] = ids[i], leaving.replayed[n]
      remembered[last], given_ids[last] = leaving.remembered[n], leaving.given_id[n]
      known, bytes, tokens = known + 1, bytes + leaving.payload_bytes[n], tokens + leaving.tokens[n]
    end
  end
  write_list('ZREM', key, ids)
  leave_token_queues(ids)
  increase(RUN, place .. '_groups', -known)
  increase(RUN, place .. '_bytes', -bytes)
  increase(DROPPED, reason .. ':' .. lane.environment, known)
  increase(LEDGER, reason .. ':' .. lane.environment, tokens)
  if redis.call('HINCRBY', counts, lane.name, -#ids) == 0 then redis.call('HDEL', counts, lane.name) end
  dropped = dropped + #ids
end

-- Drop those groups that wait in a place, and return the numbers of the others.
local function drop_waiting(place, key, counts, lane, numbers, leaving)
  local ids, here, others = {}, {}, {}
  for i, n in ipairs(numbers) do ids[i] = group_ids[n] end
  for i, score in ipairs(read('ZMSCORE', key, ids)) do
    if score then here[#here + 1] = numbers[i] else others[#others + 1] = numbers[i] end
  end
  drop_from(place, key, counts, lane, here, leaving)
  return others
end

-- Remember the groups that were dropped. Delete the payloads of those that entered no replay buffer: only the queue
-- names them. Mark the others.
local function forget_dropped(clock)
  local latest, unnamed, others = redis.call('HGET', RUN, 'latest'), {}, {}
  for n, id in ipairs(forgotten) do
    if replayed[n] or id == latest then
      others[#others + 1] = id
    else
      later('HDEL', GROUPS, id)
      unnamed[#unnamed + 1] = PAYLOADS .. id
    end
  end
  remember_ends(forgotten, remembered, given_ids, reason, '-', clock)
  forget_payloads(RUN, GROUPS, UNREFERENCED, others)
  flush()
  if #unnamed > 0 then redis.call('UNLINK', unpack(unnamed)) end
end
