-- rows: read the lists behind the fixed keys or arguments of a script (not a command of its own).
--
-- Return what stands in a list from `first` on.
local function rest(list, first)
  local found = {}
  for i = first, #list do found[#found + 1] = list[i] end
  return found
end

-- Return the rows of a list from `first` on, as tables with these fields: `most` rows, or all that follow.
local function rows(list, first, names, most)
  local found, width = {}, #names
  local last = most and first + most * width - 1 or #list
  for i = first, last, width do
    local row = {}
    for n = 1, width do row[names[n]] = list[i + n - 1] end
    found[#found + 1] = row
  end
  return found
end
