-- submitted_groups: what admit_groups is handed, and what is known of it already (not a command of its own).
--
local RUN, RECENT, UNINDEXED, GROUPS, SEEN, SENT, LANES, BUFFERS = unpack(KEYS, 1, 8)
local VERSIONS, GIVEN_IDS, GIVEN_IDS_UNTIL, DROPPED, HISTORY, ENDED, DROUGHT = unpack(KEYS, 9, 15)
local OWN_KEYS, OWN_ARGUMENTS, WORDS = 16, 9, 3  -- of a group: where they begin, and how many arguments

local function run_as_it_is()
  local found = redis.call('HMGET', RUN, 'epoch', 'policy_version', 'latest', 'arrivals',
    'queued_groups', 'buffered_groups', 'queued_bytes', 'buffered_bytes')
  local groups, bytes = (found[5] or 0) + (found[6] or 0), (found[7] or 0) + (found[8] or 0)
  return {epoch = found[1] or '0', policy_version = found[2] or '0', latest = found[3], arrivals = found[4] or 0,
    groups = groups, bytes = bytes}
end

-- Its entry: 'bytes checksum ... environment:size version given_id'; what is in between is for others.
local function submitted_group(key, argument)
  local group = {id = ARGV[argument], where = ARGV[argument + 1], place = KEYS[key], payload = KEYS[key + 1]}
  group.stored = group.where == 'queued' or group.where == 'buffered'
  group.bytes, group.checksum, group.rest = string.match(ARGV[argument + 2], '^(%d+) (%S+) (.*)$')
  group.lane, group.version, group.given = string.match(group.rest, '(%S+) (%S+) (%S+)$')
  group.environment, group.size = string.match(group.lane, '^(.*):(.*)$')
  return group
end

local function submitted_groups()
  local groups, ids, given = {}, {}, {}
  for n = 1, tonumber(ARGV[8]) do
    local group = submitted_group(OWN_KEYS + (n - 1) * 2, OWN_ARGUMENTS + (n - 1) * WORDS)
    groups[n], ids[n], given[n] = group, group.id, group.given
  end
  local recent, unindexed = read('ZMSCORE', RECENT, ids), read('ZMSCORE', UNINDEXED, ids)
  local first = read('HMGET', GIVEN_IDS, given)
  for n, group in ipairs(groups) do
    group.recent, group.reserved, group.first = recent[n], unindexed[n], first[n]
  end
  return groups
end

-- What was written for nothing is garbage at once: senders try again and again, and the run may have been removed.
local function refused(groups, reply)
  advance_clock(RUN)
  for _, group in ipairs(groups) do
    if group.stored and not group.recent then later('ZADD', UNINDEXED, -1, group.id) end
  end
  flush()
  return reply
end

-- What a group is: 'new'; 'written' by the same command before, whose answer was lost; 'repeated' by its sender, and what
-- became of it the first time; or why it can not be admitted. Somebody may be about to remove what is garbage.
local function outcome_of(group)
  local first, outcome, contents = string.match(group.first or '', '^(%S+) (%S+) (%S+)$')
  if first and first ~= group.id then return contents == group.checksum and 'repeated ' .. outcome or 'exists' end
  if group.recent then return 'written' end
  if not group.stored then return 'new' end
  local there = tonumber(group.reserved or ARGV[7]) >= 0 and redis.call('STRLEN', group.payload) == tonumber(group.bytes)
  return there and 'new' or 'outdated'
end
