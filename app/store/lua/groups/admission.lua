-- admission: read the arguments of admit_groups and admit_and_observe, and stored facts (not a command of its own).
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
local STARVATION = KEYS[12]  -- hash: what arrived after the last submission with a trainable group
local LANE_HEADS = KEYS[13]  -- zset: lane -> arrival of its oldest group
local LEDGER = KEYS[14]  -- hash: 'state:environment' -> tokens
local TOKEN_QUEUES = KEYS[15]  -- hash: account -> 'groups bytes' queued, for each account that has a queue limit
local TOKEN_GROUPS = KEYS[16]  -- hash: id of a group of such an account -> 'account bytes'
local epoch = ARGV[1]  -- that the decision is based on
local policy_version = ARGV[2]  -- that the decision is based on, or '' for any
local dedup_ms = ARGV[3]  -- how long after admission the given id of a group that has left is recognised
local max_groups = ARGV[4]  -- most groups that may wait, or '' for no limit
local max_bytes = ARGV[5]  -- most bytes that may wait, or '' for no limit
-- score to assume for a payload that is not in UNREFERENCED: 0 if this transaction wrote it, else -1
local score_if_absent = ARGV[6]
local sizes = cjson.decode(ARGV[7])  -- JSON list: groups of each submission
-- JSON list: {submission, account, max_groups, max_bytes} of the submissions whose account has a queue limit.
-- submission: its number, from 1. max_groups or max_bytes may be null for no limit
local limited = cjson.decode(ARGV[8])
-- groups that have left: while the run remembers that many, it remembers no further groups dropped on arrival
local most_remembered = ARGV[9]

local sent = 0
for _, size in ipairs(sizes) do sent = sent + size end
-- where: 'queued', 'buffered' or why it is dropped. untrainable: why it has no training value, or ''.
-- entry: the index entry without its first word, accepted_ms
local submitted = columns(ARGV, 10, {'group_id', 'where', 'payload_bytes', 'checksum', 'environment', 'size', 'tokens',
  'lane', 'policy_version', 'given_id', 'untrainable', 'entry'}, sent)
local places = columns(KEYS, 17, {'waiting', 'payload'}, sent)  -- waiting: zset, its lane or buffer; payload: string

-- For each group: its name, the record in KNOWN, the score of its payload, and how many groups its lane has.
local names = {}
for n, id in ipairs(submitted.group_id) do names[n] = name_of(id, submitted.given_id[n]) end
local known, pending_since = read('HMGET', KNOWN, names), read('ZMSCORE', UNREFERENCED, submitted.group_id)
local in_lane = read('HMGET', LANES, submitted.lane)

local function is_stored(n) return submitted.where[n] == 'queued' or submitted.where[n] == 'buffered' end

-- Advance the run clock, and return facts and totals of the run. Missing totals are 0.
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
