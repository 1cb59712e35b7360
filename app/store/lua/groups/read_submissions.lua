-- read_submissions: read the arguments of admit_groups, and the stored facts about them (not a command of its own).
--
local RUN, RECENT, UNREFERENCED, GROUPS, SEEN, SENT, LANES, BUFFERS = unpack(KEYS, 1, 8)
local VERSIONS, GIVEN_IDS, GIVEN_IDS_UNTIL, DROPPED, HISTORY, ENDED, STARVATION = unpack(KEYS, 9, 15)
local OWN_KEYS, OWN_ARGUMENTS, WORDS = 16, 9, 3  -- of a group: where they begin, and how many arguments
local SIZES, GROUPS_SENT = {}, 0  -- groups of each submission, and in all
for size in string.gmatch(ARGV[8], '%d+') do
  SIZES[#SIZES + 1], GROUPS_SENT = tonumber(size), GROUPS_SENT + size
end

local function run_as_it_is()
  local found = redis.call('HMGET', RUN, 'epoch', 'policy_version', 'latest', 'arrivals',
    'queued_groups', 'buffered_groups', 'queued_bytes', 'buffered_bytes')
  local groups, bytes = (found[5] or 0) + (found[6] or 0), (found[7] or 0) + (found[8] or 0)
  return {epoch = found[1] or '0', policy_version = found[2] or '0', latest = found[3], arrivals = found[4] or 0,
    groups = groups, bytes = bytes}
end

-- Its entry: 'bytes checksum ... environment:size version given_id'. The words in between are not read here.
local function submitted_group(key, argument)
  local group = {id = ARGV[argument], where = ARGV[argument + 1], place = KEYS[key], payload = KEYS[key + 1]}
  group.stored = group.where == 'queued' or group.where == 'buffered'
  group.bytes, group.checksum, group.rest = string.match(ARGV[argument + 2], '^(%d+) (%S+) (.*)$')
  group.lane, group.version, group.given = string.match(group.rest, '(%S+) (%S+) (%S+)$')
  group.environment, group.size = string.match(group.lane, '^(.*):(.*)$')
  return group
end

local function read_submissions()
  local groups, ids, given = {}, {}, {}
  for n = 1, GROUPS_SENT do
    local group = submitted_group(OWN_KEYS + (n - 1) * 2, OWN_ARGUMENTS + (n - 1) * WORDS)
    groups[n], ids[n], given[n] = group, group.id, group.given
  end
  local recent, unreferenced = read('ZMSCORE', RECENT, ids), read('ZMSCORE', UNREFERENCED, ids)
  local first = read('HMGET', GIVEN_IDS, given)
  for n, group in ipairs(groups) do
    group.recent, group.reserved, group.first = recent[n], unreferenced[n], first[n]
  end
  return groups
end

-- Whether this same command stored a submission before, and its answer was lost. Its preconditions held then.
local function is_written(groups, first, last)
  for n = first, last do
    if groups[n].recent then return true end
  end
  return false
end
