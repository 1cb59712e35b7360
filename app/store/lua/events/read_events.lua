#!lua flags=no-writes
-- read_events: read the events of a run after one of them, oldest first.
--
-- Returns {1 or 0: is there such a run, 1 or 0: are events missing between `after` and the first one returned, list of
-- entries}.
-- Cost: O(n), n the events returned.
--
local RUN = KEYS[1]  -- hash: exists while the run does
local EVENTS = KEYS[2]  -- stream: events
local after = ARGV[1]  -- id; or '-' or '0-0' for the oldest event that is kept
local count = ARGV[2]  -- most events to return

-- Return whether an id is smaller than another one: both are 'MILLISECONDS-NUMBER'.
local function is_before(one, other)
  local ms, number = string.match(one, '^(%d+)-(%d+)$')
  local other_ms, other_number = string.match(other, '^(%d+)-(%d+)$')
  ms, other_ms = tonumber(ms), tonumber(other_ms)
  return ms < other_ms or ms == other_ms and tonumber(number) < tonumber(other_number)
end

if redis.call('EXISTS', EVENTS) == 0 then return {redis.call('EXISTS', RUN), 0, {}} end
local missing = 0
if after ~= '-' then
  local facts, info = {}, redis.call('XINFO', 'STREAM', EVENTS)
  for i = 1, #info, 2 do facts[info[i]] = info[i + 1] end
  local first = facts['first-entry']
  if facts['entries-added'] > facts.length and first and is_before(after, first[1]) then missing = 1 end
end
local oldest = after == '-' and after or '(' .. after
if after == '-' or after == '0-0' then
  -- The stream of a run that was made again at once begins with the end of the former run, for those who followed that.
  local first = redis.call('XRANGE', EVENTS, '-', '+', 'COUNT', 1)[1]
  if first and first[2][2] == '{"kind":"run deleted"}' then oldest = '(' .. first[1] end
end
return {redis.call('EXISTS', RUN), missing, redis.call('XRANGE', EVENTS, oldest, '+', 'COUNT', count)}
