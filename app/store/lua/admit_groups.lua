#!lua
-- admit_groups: index groups whose payloads are written, all or none.
--
-- KEYS[1] run          hash  run clock, epoch, policy version, totals, latest group
-- KEYS[2] recent       zset  group id -> run clock at admission, ms
-- KEYS[3] unindexed    zset  reserved payloads
-- KEYS[4] groups       hash  group id -> entry
-- KEYS[5] seen         hash  environment id -> run clock at its last sign of life, ms
-- KEYS[6] sent         hash  environment id -> 'clock_ms size sequences'
-- KEYS[7] lanes        hash  lane -> groups queued
-- KEYS[8] buffers      hash  lane -> groups buffered
-- KEYS[9] versions     zset  group id -> policy version
-- KEYS[10] named       hash  given id -> 'group_id outcome checksum'
-- KEYS[11] named_until zset  given id -> run clock at which it is forgotten, ms
-- KEYS[12] dropped     hash  'reason:environment' -> groups
-- KEYS[13] history     hash  group id -> what became of it
-- KEYS[14] ended       zset  group id -> run clock at which that is forgotten, ms
-- KEYS[15..] per group zset the lane or buffer it goes to, string its payload
-- ARGV[1] epoch, ARGV[2] policy version decided on, or ''   ARGV[3] ms given ids are recognised for, ARGV[4] ms history
-- is kept   ARGV[5], ARGV[6] groups and bytes that may wait, or ''   ARGV per group from 7 on: id, lane, 'queued',
-- 'buffered' or why it is dropped, bytes, checksum, environment, policy version, given id, each of these '-' for none
--
-- Returns {'admitted', list of an outcome per group: 'new', 'written' or 'repeated OUTCOME'}; or, with nothing stored: {'outdated'}: decide and write
-- again; {'full', groups, bytes} that wait; {'exists', given id}, which names other contents.
-- Cost: O(n log m), n the groups, m the groups in a lane.
--
-- include clock
-- include index_group
local FIRST, FIELDS = 7, 8
-- What was written for nothing is garbage at once: senders try again and again, and the run may have been removed.
local function refused(reply)
  advance_clock(KEYS[1])
  for i = FIRST, #ARGV, FIELDS do
    local lost = is_stored(ARGV[i + 2]) and not redis.call('ZSCORE', KEYS[2], ARGV[i])
    if lost then redis.call('ZADD', KEYS[3], -1, ARGV[i]) end
  end
  return reply
end
local now = redis.call('HMGET', KEYS[1], 'epoch', 'policy_version', 'queued_groups', 'buffered_groups',
  'queued_bytes', 'buffered_bytes')
if (now[1] or '0') ~= ARGV[1] or ARGV[2] ~= '' and (now[2] or '0') ~= ARGV[2] then return refused({'outdated'}) end
local groups, bytes = (now[3] or 0) + (now[4] or 0), (now[5] or 0) + (now[6] or 0)
local full = ARGV[5] ~= '' and groups >= tonumber(ARGV[5]) or ARGV[6] ~= '' and bytes >= tonumber(ARGV[6])
local outcomes = {}
for i = FIRST, #ARGV, FIELDS do
  local payload = KEYS[16 + (i - FIRST) / FIELDS * 2]
  local outcome = outcome_of(payload, ARGV[i], unpack(ARGV, i + 2, i + FIELDS - 1))
  if outcome == 'exists' then return refused({outcome, ARGV[i + FIELDS - 1]}) end
  if outcome == 'new' and full then return refused({'full', groups, bytes}) end
  if outcome == 'outdated' then return refused({outcome}) end
  outcomes[#outcomes + 1] = outcome
end
local clock = advance_clock(KEYS[1])
for position, outcome in ipairs(outcomes) do
  local i = FIRST + (position - 1) * FIELDS
  index_group(outcome, clock, KEYS[13 + position * 2], unpack(ARGV, i, i + FIELDS - 1))
end
redis.call('PUBLISH', KEYS[1], 'admitted')
return {'admitted', outcomes}
