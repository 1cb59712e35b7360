#!lua
-- append_history: add what an API process has counted in a run to the finest series of its history.
--
-- Returns the new entry; or, with nothing added, 'none': there is no such run, or nothing has happened in it since it
-- was reset; or 'later': the entry to replace is gone, or of an earlier span, which may have been added up already.
-- Cost: O(1).
--
-- include service_time
local RUN = KEYS[1]  -- hash: configuration, totals
local SERIES_TOTALS = KEYS[2]  -- string: JSON of what counts of the history were counted up to
local finest = KEYS[3]  -- stream: facts by time
local most = ARGV[1]  -- entries that are kept, about
local kept_ms = ARGV[2]  -- how long a history is kept if nothing happens any more
local span_ms = ARGV[3]  -- length of a span
local replaced = ARGV[4]  -- the entry that the facts have, too, and that goes; '' for none
local facts = ARGV[5]
local totals = ARGV[6]  -- JSON of what the facts were counted up to; '' if they have no part of it

if redis.call('HEXISTS', RUN, 'config') + redis.call('HEXISTS', RUN, 'accepted_groups') == 0 then return 'none' end
if replaced ~= '' then
  local then_ms, now_ms = tonumber(string.match(replaced, '^%d+')), math.floor(time_us() / 1000)
  if math.floor(now_ms / span_ms) ~= math.floor(then_ms / span_ms) then return 'later' end
  if redis.call('XDEL', finest, replaced) == 0 then return 'later' end
end
local entry = redis.call('XADD', finest, 'MAXLEN', '~', most, '*', 'facts', facts)
redis.call('PEXPIRE', finest, kept_ms)
if totals ~= '' then redis.call('SET', SERIES_TOTALS, totals, 'PX', kept_ms) end
return entry
