-- replayed_references: groups that a batch has from the replay buffer, beside those from the queue (not a command of its own).
--
-- The run's sums know only those from the queue: the others were delivered before. Each batch in hand or kept counts once
-- in `replayed`, and so keeps their payloads.
local function parted(batch)
  local fresh, fresh_bytes, bytes = {}, 0, 0
  for _, group in ipairs(batch) do
    bytes = bytes + group.payload_bytes
    if not group.replayed then
      fresh[#fresh + 1] = group
      fresh_bytes = fresh_bytes + group.payload_bytes
    end
  end
  return fresh, fresh_bytes, bytes
end

local function ids_of(groups)
  local ids = {}
  for i, group in ipairs(groups) do ids[i] = group.group_id end
  return ids
end

local function let_go_of_replayed(batch, unreferenced, replayed)
  for _, group in ipairs(batch) do
    if group.replayed and redis.call('HINCRBY', replayed, group.group_id, -1) <= 0 then
      redis.call('HDEL', replayed, group.group_id)
      redis.call('ZADD', unreferenced, -1, group.group_id)
    end
  end
end
