#!lua
-- append_history: add what an API process has counted in a run to the finest series of its history.
--
-- Returns 1, or 0 if there is no such run, or nothing has happened in it since it was reset; then nothing is added.
-- Cost: O(1).
--
local RUN = KEYS[1]  -- hash: configuration, totals
local SERIES_TOTALS = KEYS[2]  -- string: JSON of what counts of the history were counted up to
local finest = KEYS[3]  -- stream: facts by time
local most = ARGV[1]  -- entries that are kept, about
local kept_ms = ARGV[2]  -- how long a history is kept if nothing happens any more
local facts = ARGV[3]
local totals = ARGV[4]  -- JSON of what the facts were counted up to; '' if they have no part of it

if redis.call('HEXISTS', RUN, 'config') + redis.call('HEXISTS', RUN, 'accepted_groups') == 0 then return 0 end
redis.call('XADD', finest, 'MAXLEN', '~', most, '*', 'facts', facts)
redis.call('PEXPIRE', finest, kept_ms)
if totals ~= '' then redis.call('SET', SERIES_TOTALS, totals, 'PX', kept_ms) end
return 1
