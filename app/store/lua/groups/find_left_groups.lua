#!lua flags=no-writes
-- find_left_groups: look up groups that have left, the latest first; nothing is changed.
--
-- Returns rows of five words: run clock of the record in LEFT, number of later records with that run clock, name of the
-- group, its value in KNOWN or false, 1 if it is held or 0. Fewer than `most` rows: there are no more.
-- Cost: O(log n) reads of a list of n records, and O(most).
--
local GROUPS = KEYS[1]  -- hash: group id -> entry
local KNOWN = KEYS[2]  -- hash: name of a group -> its id, and how it ended
local LEFT = KEYS[3]  -- list: 'clock_ms name name ...' of groups that have left
local clock_ms = ARGV[1]  -- run clock of the record to begin with, '' for the latest
local passed = ARGV[2]  -- how many later records with that run clock to skip
local last_name = ARGV[3]  -- name that was returned last, or ''; groups that left before it follow
local most = ARGV[4]
-- include bulk

local AT_ONCE = 64
local records, first_read = {}, nil

-- Return a record by its number, from 0. Call this with falling numbers.
local function record_at(n)
  if not first_read or n < first_read then
    first_read = math.max(n - AT_ONCE + 1, 0)
    records = redis.call('LRANGE', LEFT, first_read, n)
  end
  return records[n - first_read + 1]
end

local function clock_of(record) return tonumber(string.match(record, '^%d+')) end

-- Return the number of records up to a run clock. Records are in the order of the run clock.
local function count_until(clock)
  local low, high = 0, redis.call('LLEN', LEFT)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if clock_of(redis.call('LINDEX', LEFT, middle)) > clock then high = middle else low = middle + 1 end
  end
  return low
end

local found, names = {}, {}

-- Add the names of a record, the last one first. In the record with `last_name`, begin before that name.
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
  -- New records with the same run clock may have been added. Skip them, until the record with the last name.
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
