#!lua flags=allow-oom
-- tick: advance the run clock, expire silent members, and return what there is to do; a run with nothing to do sleeps.
--
-- A run that sleeps is not ticked until something wakes it (`clock`), or until the time comes at which it has to forget
-- something. A run with leases or a replay buffer may have other work at some time. It sleeps only if the process that
-- ticks it knows that time, and if nothing has happened since.
--
-- Returns {run clock in ms, list of the members that expired, list of the fields of `Tick` that are true}. If there is
-- no such run (it was forgotten, or does not exist yet), it returns {0, {}, {}} and stores nothing. {} if another
-- process maintains runs; then nothing has changed.
-- Cost: O(members forgotten), at most 1,000 at once. If groups were dropped: O(environments), at most every 5 s.
--
local RUN = KEYS[1]  -- hash: run clock, configuration
local SERVICE = KEYS[2]  -- hash: service clock, term of the process that maintains runs
local RUNS = KEYS[3]  -- zset: names of runs by the service clock at which they need maintenance, ms
local ENVIRONMENTS = KEYS[4]  -- hash: environment id -> JSON record
local KNOWN = KEYS[5]  -- hash: name of a group -> its id, and how it ended
local BUFFERS = KEYS[6]  -- hash: lane -> groups buffered
local UNREFERENCED = KEYS[7]  -- zset: payloads that are pending or marked for deletion
local MARKED_HASHES = KEYS[8]  -- set: tokens of marked hashes
local LEASE_STATES = KEYS[9]  -- hash: batch id -> its lease
local LEFT = KEYS[10]  -- list: 'clock_ms name name ...' of groups that have left
local ENDED = KEYS[11]  -- zset: ended batches and samples by the run clock at which they are forgotten
local REPLAY = KEYS[12]  -- hash: the replay buffer's configuration and totals
local GROUPS = KEYS[13]  -- hash: group id -> entry
-- zset: curricula whose state is being loaded, by the run clock at their last progress
local CURRICULA_LOADING = KEYS[14]
local MEMBERS = KEYS[15]  -- hash: 'environment:member' -> 'joined_ms running_groups permits retries'
local MEMBERS_HEARD = KEYS[16]  -- zset: members by the run clock at their last sign of life, ms
local MEMBER_COUNTS = KEYS[17]  -- hash: environment id -> its live members
local RUNNING = KEYS[18]  -- hash: environment id -> groups that its members run
local STARTED = KEYS[19]  -- hash: environment id -> groups that its members have started
local EVENTS = KEYS[20]  -- stream: events
local DROPPED = KEYS[21]  -- hash: 'reason:environment' -> groups
local DROPPED_TOLD = KEYS[22]  -- hash: the part of DROPPED that events have reported
local name = ARGV[1]  -- of the run
local term = ARGV[2]  -- of the process that maintains runs, or '' for any
local kept_after_reset_ms = ARGV[3]  -- how long a run is kept after a reset, because old commands may be repeated
local member_ttl_ms = ARGV[4]  -- silence after which a member is gone
local remembered_ms = ARGV[5]  -- how long groups are remembered if the run does not say, ms
local shortest_sleep_ms = ARGV[6]
local longest_sleep_ms = ARGV[7]
local awaited_ms = ARGV[8]  -- how long a run stays awake after a trainer got no batch
local most_events = ARGV[9]  -- about how many events to keep
local last_tick_ms = ARGV[10]  -- run clock at the last tick of the process that ticks, or '' before its first
local work_ms = ARGV[11]  -- run clock at which leases or the replay buffer need work if nothing happens, or '': unknown
-- include clock
-- include members
-- include expire_members
-- include next_due
-- include fall_asleep
-- include record_drops

if term ~= '' and redis.call('HGET', SERVICE, 'term') ~= term then return {} end
if redis.call('EXISTS', RUN) == 0 then return {0, {}, {}} end
local calm = redis.call('HGET', RUN, 'clock_ms') == last_tick_ms
local clock = advance_clock(RUN)
local expired = expire_members(m, clock - member_ttl_ms)
local due_ms, facts = next_due(), {}

-- Add a field of `Tick` to the reply if it is true.
local function note(fact, holds)
  if holds then facts[#facts + 1] = fact end
end

note('buffered', redis.call('EXISTS', BUFFERS) == 1)
note('unreferenced', redis.call('EXISTS', UNREFERENCED) == 1)
note('marked_hashes', redis.call('EXISTS', MARKED_HASHES) == 1)
note('due', due_ms <= clock)
note('aging', redis.call('EXISTS', GROUPS) == 1 and redis.call('HGET', RUN, 'aging') == '1')
note('loading', redis.call('EXISTS', CURRICULA_LOADING) == 1)
note('unswept', redis.call('HEXISTS', RUN, 'unswept') == 1)
local busy = redis.call('EXISTS', MEMBERS_HEARD) + #expired + record_drops(clock) + #facts
if clock - (redis.call('HGET', RUN, 'waited_ms') or -awaited_ms) < tonumber(awaited_ms) then busy = busy + 1 end
if redis.call('EXISTS', LEASE_STATES, REPLAY) > 0 then
  local known = calm and work_ms ~= '' and work_ms - clock >= tonumber(shortest_sleep_ms)
  if known then due_ms = math.min(due_ms, work_ms) else busy = busy + 1 end
end
note('calm', calm)
note('leased', redis.call('EXISTS', LEASE_STATES) == 1)
note('replay', redis.call('EXISTS', REPLAY) == 1)
note('environments', redis.call('EXISTS', ENVIRONMENTS) == 1)
local held = redis.call('HEXISTS', RUN, 'config') + redis.call('EXISTS', ENVIRONMENTS, KNOWN, BUFFERS, UNREFERENCED,
  MARKED_HASHES, LEASE_STATES, ENDED, REPLAY, GROUPS, CURRICULA_LOADING, MEMBERS, MEMBERS_HEARD, MEMBER_COUNTS, RUNNING,
  STARTED)
local kept_until_ms = (redis.call('HGET', RUN, 'reset_ms') or -kept_after_reset_ms) + kept_after_reset_ms
if kept_until_ms > clock then held, due_ms = held + 1, math.min(due_ms, kept_until_ms) end
note('held', held > 0)
if busy == 0 and held > 0 then fall_asleep(clock, due_ms) end
return {clock, expired, facts}
