-- find_planned_groups: groups that are about to be taken out of their lanes (not a command of its own).
--
-- ARGV from `first` on names them, in `fields` words each. Their ids, and bytes in all; or nil if one of them does not
-- wait in its lane, or has no entry.
local function find_planned_groups(first, fields)
  local GROUPS, LANES = KEYS[2], 10
  local ids, of_lane, bytes = {}, {}, 0
  for i = first, #ARGV, fields do
    local lane = KEYS[LANES + (i - first) / fields]
    of_lane[lane] = of_lane[lane] or {}
    table.insert(of_lane[lane], ARGV[i])
    table.insert(ids, ARGV[i])
  end
  for lane, groups in pairs(of_lane) do
    for _, arrival in ipairs(read('ZMSCORE', lane, groups)) do if not arrival then return nil end end
  end
  for _, entry in ipairs(read('HMGET', GROUPS, ids)) do
    if not entry then return nil end
    bytes = bytes + string.match(entry, '^%d+')
  end
  return ids, bytes
end
