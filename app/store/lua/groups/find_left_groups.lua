#!lua flags=no-writes
-- find_left_groups: look up groups that have left, the latest first; nothing is changed.
--
-- Returns rows of five: run clock of the record in LEFT, later records of that time, name of the group, what is known
-- of it (false: nothing), whether it is held (1 or 0). With fewer than `most` rows there are no more.
-- Cost: O(log n) reads of a list of n records, and O(most).
--
local GROUPS = KEYS[1]  -- hash: group id -> entry
local KNOWN = KEYS[2]  -- hash: name of a group -> its id, and how it ended
local LEFT = KEYS[3]  -- list: 'clock_ms name name ...' of groups that have left
local clock_ms = ARGV[1]  -- of the record to begin with, '' for the latest
local passed = ARGV[2]  -- later records of that time
local last_name = ARGV[3]  -- name that was returned last; those that left before it follow
local most = ARGV[4]
-- include bulk

local AT_ONCE = 64
local records, first_read = {}, nil

-- Return a record by its number, from 0. They are read downwards.
local function record_at(n)
  if not first_read or n < first_read then
    first_read = math.max(n - AT_ONCE + 1, 0)
    records = redis.call('LRANGE', LEFT, first_read, n)
  end
  return records[n - first_read + 1]
end

local function clock_of(record) return tonumber(string.match(record, '^%d+')) end

-- Return the number of records up to a run clock: they are in its order.
local function count_until(clock)
  local low, high = 0, redis.call('LLEN', LEFT)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if clock_of(redis.call('LINDEX', LEFT, middle)) > clock then high = middle else low = middle + 1 end
  end
  return low
end

local found, names = {}, {}

-- Add the names of a record, the last one first. Only those before the one that was returned last.
local function add_names(record, clock, later)
  local own = {}
  for name in string.gmatch(string.match(record, ' .*'), '%S+') do
    if name == last_name then break end
    own[#own + 1] = name
  end
  for i = #own, math.max(#own - (most - #names) + 1, 1), -1 do
    names[#names + 1], found[#found + 1] = own[i], {clock, later}
  end
end

local clock, later = tonumber(clock_ms), tonumber(passed)
local at = (clock and count_until(clock) or redis.call('LLEN', LEFT)) - 1 - later
while at >= 0 and #names < tonumber(most) do
  local record = record_at(at)
  if clock_of(record) ~= clock then clock, later, last_name = clock_of(record), 0, '' end
  -- Records of the same time may have come since. Then the one with the last name is an earlier one.
  if last_name == '' or string.find(record .. ' ', ' ' .. last_name .. ' ', 1, true) then
    add_names(record, clock, later)
    last_name = ''
  end
  at, later = at - 1, later + 1
end
local rows = {}
for i, known in ipairs(read('HMGET', KNOWN, names)) do
  local id = known and string.match(known, '^%S+')
  local held = id and redis.call('HEXISTS', GROUPS, id) == 1 and 1 or 0
  for _, word in ipairs({found[i][1], found[i][2], names[i], known, held}) do rows[#rows + 1] = word end
end
return rows
