-- admission: what admit_groups and admit_and_observe get, and the stored facts about it (not a command of its own).
--
local RUN = KEYS[1]  -- hash: run clock, epoch, policy version, totals, latest group
local KNOWN = KEYS[2]  -- hash: name of a group -> its id, and how it ended
local UNREFERENCED = KEYS[3]  -- zset: group id -> run clock when it became pending, ms, or -1 once marked for deletion
local GROUPS = KEYS[4]  -- hash: group id -> entry
local SEEN = KEYS[5]  -- hash: environment id -> run clock at its last sign of life, ms
local SENT = KEYS[6]  -- hash: environment id -> 'clock_ms size sequences'
local LANES = KEYS[7]  -- hash: lane -> groups queued
local BUFFERS = KEYS[8]  -- hash: lane -> groups buffered
local VERSIONS = KEYS[9]  -- zset: group id -> policy version
local LEFT = KEYS[10]  -- list: 'clock_ms name name ...' of groups that have left
local DROPPED = KEYS[11]  -- hash: 'reason:environment' -> groups
local STARVATION = KEYS[12]  -- hash: what came since groups were last stored
local LANE_HEADS = KEYS[13]  -- zset: lane -> arrival of its oldest group
local LEDGER = KEYS[14]  -- hash: 'state:environment' -> tokens
local TOKEN_QUEUES = KEYS[15]  -- hash: account with a limit of what it has in the queue -> 'groups bytes' of that
local TOKEN_GROUPS = KEYS[16]  -- hash: id of such a group -> 'account bytes'
local epoch = ARGV[1]  -- decided on
local policy_version = ARGV[2]  -- decided on, or '' if it does not matter
local dedup_ms = ARGV[3]  -- how long after its admission a group's given id is recognised, if the group has left
local max_groups = ARGV[4]  -- that may wait, or ''
local max_bytes = ARGV[5]  -- that may wait, or ''
local unreserved = ARGV[6]  -- score of a payload without one: 0 if this transaction wrote it, -1 if it is not reserved
local sizes = cjson.decode(ARGV[7])  -- JSON list: groups of each submission
-- JSON list: those of a token with such a limit: submission, from 1; token; max_groups, max_bytes, or null
local limited = cjson.decode(ARGV[8])

local sent = 0
for _, size in ipairs(sizes) do sent = sent + size end
-- where: 'queued', 'buffered' or why it is dropped. untrainable: why it has no training value, or ''.
-- entry: without its first word, the time
local submitted = columns(ARGV, 9, {'group_id', 'where', 'payload_bytes', 'checksum', 'environment', 'size', 'tokens',
  'lane', 'policy_version', 'given_id', 'untrainable', 'entry'}, sent)
local places = columns(KEYS, 17, {'waiting', 'payload'}, sent)  -- zset: its lane or buffer; string

-- Of each group: its name, what is known under it, the score of its payload, and the groups in its lane.
local names = {}
for n, id in ipairs(submitted.group_id) do names[n] = name_of(id, submitted.given_id[n]) end
local known, reserved = read('HMGET', KNOWN, names), read('ZMSCORE', UNREFERENCED, submitted.group_id)
local in_lane = read('HMGET', LANES, submitted.lane)

local function is_stored(n) return submitted.where[n] == 'queued' or submitted.where[n] == 'buffered' end

-- Return the run, its clock advanced, and its totals as numbers, 0 if they are missing.
local function read_run()
  local clock_ms = advance_clock(RUN)
  local found = redis.call('HMGET', RUN, 'epoch', 'policy_version', 'latest', 'arrivals', 'accepted_groups',
    'queued_groups', 'queued_bytes', 'buffered_groups', 'buffered_bytes')
  for i = 4, 9 do found[i] = tonumber(found[i] or 0) end
  return {clock_ms = clock_ms, epoch = found[1] or '0', policy_version = found[2] or '0', latest = found[3],
    arrivals = found[4], accepted_groups = found[5], queued_groups = found[6], queued_bytes = found[7],
    buffered_groups = found[8], buffered_bytes = found[9]}
end

local function write_run(run)
  local latest = run.latest and {'latest', run.latest} or {}
  redis.call('HSET', RUN, 'arrivals', run.arrivals, 'accepted_groups', run.accepted_groups,
    'queued_groups', run.queued_groups, 'queued_bytes', run.queued_bytes, 'buffered_groups', run.buffered_groups,
    'buffered_bytes', run.buffered_bytes, unpack(latest))
end
