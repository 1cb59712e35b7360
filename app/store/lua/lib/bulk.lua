-- bulk: send one command for many members at once (not a command of its own).
--
local AT_ONCE = 5000  -- arguments of one command: Lua allows about 8000. Even, so that pairs stay together

-- Return the reply of HMGET or ZMSCORE for each member; false for a member that does not exist.
local function read(command, key, members)
  if #members == 0 then return {} end
  if #members <= AT_ONCE then return redis.call(command, key, unpack(members)) end
  local found = {}
  for first = 1, #members, AT_ONCE do
    local part = redis.call(command, key, unpack(members, first, math.min(first + AT_ONCE - 1, #members)))
    for i = 1, #part do found[#found + 1] = part[i] end
  end
  return found
end

local pending, increases = {}, {}

-- Queue an argument, or a pair of arguments, of a command that `flush` sends.
local function later(command, key, first, second)
  pending[command] = pending[command] or {}
  local arguments = pending[command][key]
  if not arguments then
    arguments = {}
    pending[command][key] = arguments
  end
  local n = #arguments
  arguments[n + 1], arguments[n + 2] = first, second
end

-- Queue an increase of a field of a hash for `flush`.
local function increase(key, field, by)
  increases[key] = increases[key] or {}
  increases[key][field] = (increases[key][field] or 0) + by
end

-- Send a command with these arguments at once, if there are any.
local function write_list(command, key, arguments)
  for first = 1, #arguments, AT_ONCE do
    redis.call(command, key, unpack(arguments, first, math.min(first + AT_ONCE - 1, #arguments)))
  end
end

-- Send what is queued, in no fixed order.
local function flush()
  for command, keys in pairs(pending) do
    for key, arguments in pairs(keys) do write_list(command, key, arguments) end
  end
  for key, fields in pairs(increases) do
    for field, by in pairs(fields) do redis.call('HINCRBY', key, field, by) end
  end
  pending, increases = {}, {}
end
