#!lua flags=allow-oom
-- forget_environments: forget environments without members and groups; their counts move to '-'.
--
-- Returns 1, or 0 if something joined, changed or arrived since the decision; then nothing has changed.
-- Cost: O(number of arguments).
--
local RUN = KEYS[1]  -- hash: epoch
local ENVIRONMENTS = KEYS[2]  -- hash: environment id -> JSON record
local SEEN = KEYS[3]  -- hash: environment id -> run clock at its last sign of life, ms
local SENT = KEYS[4]  -- hash: environment id -> 'clock_ms size sequences'
local SERVED = KEYS[5]  -- hash: environment id or '-' -> sequences handed out in batches
local DROPPED = KEYS[6]  -- hash: 'reason:environment' -> groups
local MEMBER_COUNTS = KEYS[7]  -- hash: environment id -> its live members
local ENVIRONMENT_EPOCHS = KEYS[8]  -- zset: environment id -> epoch that began when its record was written
local LEDGER = KEYS[9]  -- hash: 'state:environment' -> tokens
local DROPPED_TOLD = KEYS[10]  -- hash: the part of DROPPED that events have reported
local epoch = ARGV[1]  -- that the decision is based on
-- JSON list of {id, sent, reasons}. sent: its SENT as it was read, or ''. reasons: why its groups were dropped
local forgotten = cjson.decode(ARGV[2])
-- include next_number

if (redis.call('HGET', RUN, 'epoch') or '0') ~= epoch then return 0 end
for _, environment in ipairs(forgotten) do
  if (redis.call('HGET', SENT, environment.id) or '') ~= environment.sent then return 0 end
  if redis.call('HEXISTS', MEMBER_COUNTS, environment.id) == 1 then return 0 end
end

local function move_count(key, from, to)
  local counted = redis.call('HGET', key, from)
  if not counted then return end
  redis.call('HINCRBY', key, to, counted)
  redis.call('HDEL', key, from)
end

for _, environment in ipairs(forgotten) do
  local id = environment.id
  move_count(SERVED, id, '-')
  for _, state in ipairs({'generated', 'leased', 'trained'}) do
    move_count(LEDGER, state .. ':' .. id, state .. ':-')
  end
  for _, reason in ipairs(environment.reasons) do
    for _, key in ipairs({DROPPED, DROPPED_TOLD, LEDGER}) do move_count(key, reason .. ':' .. id, reason .. ':-') end
  end
  for _, key in ipairs({ENVIRONMENTS, SEEN, SENT}) do redis.call('HDEL', key, id) end
  redis.call('ZREM', ENVIRONMENT_EPOCHS, id)
end
next_number(RUN, 'epoch')
return 1
