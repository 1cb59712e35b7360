-- rows: read the lists behind the fixed keys or arguments of a script (not a command of its own).
--
-- Return a part of a list. `unpack` copies a short part three times as fast as a loop.
local function slice(list, first, last)
  if last - first < 5000 then return {unpack(list, first, last)} end
  local found = {}
  for i = first, last do found[i - first + 1] = list[i] end
  return found
end

-- Return the words of a list from `first` to its end.
local function rest(list, first) return slice(list, first, #list) end

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

-- Return a list of columns from `first` on, one behind the other and `length` words each, as a table by their names.
-- Its field `behind` is the first position after the columns.
local function columns(list, first, names, length)
  local found = {behind = first + #names * length}
  for n, name in ipairs(names) do
    local from = first + (n - 1) * length
    found[name] = slice(list, from, from + length - 1)
  end
  return found
end
