-- replayed_references: count batches with groups from the replay buffer (not a command of its own).
--
-- The hash `replayed` counts the leased and kept batches of each replayed group. While a group counts there, its
-- payload stays. The run's totals count only groups from the queue, because replayed groups were delivered before.
--
-- Return the groups from the queue, their bytes, and the bytes of all groups.
local function split_replayed(batch)
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

local function release_replayed(batch, unreferenced, replayed)
  for _, group in ipairs(batch) do
    if group.replayed and redis.call('HINCRBY', replayed, group.group_id, -1) <= 0 then
      redis.call('HDEL', replayed, group.group_id)
      redis.call('ZADD', unreferenced, -1, group.group_id)
    end
  end
end
