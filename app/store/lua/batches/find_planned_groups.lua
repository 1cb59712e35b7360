-- find_planned_groups: look up the groups of a plan in their lanes (not a command of its own).
--
-- Return their ids, and their bytes together; nil if a group is not in its lane, or has no entry.
local function find_planned_groups()
  local ids, of_lane, bytes = {}, {}, 0
  for i, group in ipairs(queued_groups) do
    local lane = LANE_KEYS[i]
    of_lane[lane] = of_lane[lane] or {}
    table.insert(of_lane[lane], group.group_id)
    ids[i] = group.group_id
  end
  for lane, waiting in pairs(of_lane) do
    for _, arrival in ipairs(read('ZMSCORE', lane, waiting)) do if not arrival then return nil end end
  end
  for i, entry in ipairs(read('HMGET', GROUPS, ids)) do
    if not entry then return nil end
    bytes = bytes + queued_groups[i].bytes
  end
  return ids, bytes
end
