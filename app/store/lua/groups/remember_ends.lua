-- remember_ends: remember the end of groups that leave now, and of their batch (not a command of its own).
--
-- A group without an entry, which should not happen, is forgotten.
local function remember_ends(ids, entries, reason, step, clock)
  local names, ends, ending = {}, {}, string.format(' %s %s %.0f ', reason, step, clock)
  for i, id in ipairs(ids) do
    if entries[i] then
      local kept, given = ended_entry(entries[i])
      local name = name_of(id, given)
      names[#names + 1] = name
      ends[#ends + 1], ends[#ends + 2] = name, id .. ending .. kept
    else
      later('HDEL', KNOWN, id)
    end
  end
  write_list('HSET', KNOWN, ends)
  note_left(LEFT, names, clock)
end
