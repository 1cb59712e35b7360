-- group_names: the names by which groups are known, so that repetitions are recognised (not a command of its own).
--
-- The hash `known` has each group that is held or left lately: short name -> id of the group. If the group has left,
-- more words follow the id: why it was dropped ('-' if it was delivered), the step of its batch or '-', the run clock
-- when it left ('-' if it was dropped on arrival), and a part of its entry (`read_leaving`).
--
-- Return the name of a group: a hash of the id that its sender gave. Without a given id, the group's own id.
local function name_of(id, given)
  return given == '-' and id or string.sub(redis.sha1hex(given), 1, 16)
end

-- Parse the value in `known` of a group that has left. Return nil for a group that is held. `left_ms` is nil if it was
-- dropped on arrival. `entry` is for `entry_word`.
local function parse_left(text)
  local id, reason, left_ms, entry = string.match(text, '^(%S+) (%S+) %S+ (%S+) (.*)$')
  return id and {id = id, reason = reason, left_ms = left_ms ~= '-' and left_ms or nil, entry = entry}
end

-- Note groups that leave now, for `expire_history`. A list takes a quarter of the memory of a sorted set.
local NAMES_AT_ONCE = 100  -- in an item of the list
local function note_left(left, names, clock)
  for first = 1, #names, NAMES_AT_ONCE do
    local last = math.min(first + NAMES_AT_ONCE - 1, #names)
    later('RPUSH', left, string.format('%.0f ', clock) .. table.concat(names, ' ', first, last))
  end
end
