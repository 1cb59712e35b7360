-- index_group: write one new group in admit_groups (not a command of its own).
--
local GIVEN_IDS_MS, HISTORY_MS = ARGV[3], ARGV[4]

local function index_group(group, clock)
  later('ZADD', RECENT, clock, group.id)
  increase(RUN, 'accepted_groups', 1)
  if group.given ~= '-' then
    later('HSET', GIVEN_IDS, group.given, group.id .. ' ' .. group.where .. ' ' .. group.checksum)
    later('ZADD', GIVEN_IDS_UNTIL, clock + GIVEN_IDS_MS, group.given)
  end
  local entry = string.format('%s %s %.0f %s', group.bytes, group.checksum, clock, group.rest)
  if not group.stored then
    increase(DROPPED, group.where .. ':' .. group.environment, 1)
    later('HSET', HISTORY, group.id, string.format('%s - - %.0f %s', group.where, clock, entry))
    later('ZADD', ENDED, clock + HISTORY_MS, group.id)
    return
  end
  later('HSET', GROUPS, group.id, entry)
  if group.version ~= '-' then later('ZADD', VERSIONS, group.version, group.id) end
  if group.reserved then later('ZREM', UNREFERENCED, group.id) end
  increase(group.where == 'queued' and LANES or BUFFERS, group.lane, 1)
  increase(RUN, group.where .. '_groups', 1)
  increase(RUN, group.where .. '_bytes', group.bytes)
end
