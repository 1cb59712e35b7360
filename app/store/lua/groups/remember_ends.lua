-- remember_ends: remember how groups end that leave now (not a command of its own).
--
-- A group without an entry, which should not happen, is forgotten.
local function remember_ends(ids, remembered, given_ids, reason, step, clock)
  local names, ends, ending = {}, {}, string.format(' %s %s %.0f ', reason, step, clock)
  for i, id in ipairs(ids) do
    if remembered[i] then
      local name = name_of(id, given_ids[i])
      names[#names + 1] = name
      ends[#ends + 1], ends[#ends + 2] = name, id .. ending .. remembered[i]
    else
      later('HDEL', KNOWN, id)
    end
  end
  write_list('HSET', KNOWN, ends)
  note_left(LEFT, names, clock)
end

-- Remember how groups end whose entries are still in GROUPS.
local function remember_ends_of(ids, reason, step, clock)
  local leaving = read_leaving(read('HMGET', GROUPS, ids))
  remember_ends(ids, leaving.remembered, leaving.given_id, reason, step, clock)
end
