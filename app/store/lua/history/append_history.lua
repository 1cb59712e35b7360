#!lua
-- append_history: add the counts of an API process to the finest series of a run's history. A repeated command adds
-- nothing within a minute, unless very many other processes have added entries in between.
--
-- Returns the id of the new entry; or, with nothing added, 'none': there is no such run, or nothing has happened in it
-- after a reset; 'outdated': another process has stored totals since; or 'later': the entry to replace is gone, or its
-- span has ended and may be merged already.
-- Cost: O(1). Without an entry to replace, the entries of the last minute are read, at most 64.
--
-- include service_time
local RUN = KEYS[1]  -- hash: configuration, totals
local SERIES_TOTALS = KEYS[2]  -- string: JSON of the totals at the last write: the next write stores the growth since
local finest = KEYS[3]  -- stream: facts by time
local most = ARGV[1]  -- about how many entries to keep
local kept_ms = ARGV[2]  -- how long the history is kept after its last entry
local span_ms = ARGV[3]  -- length of a span of the series
local replaced = ARGV[4]  -- id of the entry that this one replaces, or ''; its facts are part of `facts`
local facts = ARGV[5]
local totals = ARGV[6]  -- JSON of the totals at this write; '' to leave the stored totals
local before = ARGV[7]  -- the stored totals that the growth in `facts` counts from; '' if there were none
local write = ARGV[8]  -- unique name of this write
local REPEATED_MS = 60000  -- commands are repeated for less than a minute

if redis.call('HEXISTS', RUN, 'config') + redis.call('HEXISTS', RUN, 'accepted_groups') == 0 then return 'none' end
local now_ms = math.floor(time_us() / 1000)

local function written()  -- the entry of this write, if the command is repeated
  for _, newest in ipairs(redis.call('XREVRANGE', finest, '+', now_ms - REPEATED_MS, 'COUNT', 64)) do
    local id, words = unpack(newest)
    if words[4] == write then return id end
  end
end

if totals ~= '' and (redis.call('GET', SERIES_TOTALS) or '') ~= before then return written() or 'outdated' end
local is_replaced = false
if replaced ~= '' then
  local then_ms = tonumber(string.match(replaced, '^%d+'))
  local has_ended = math.floor(now_ms / span_ms) ~= math.floor(then_ms / span_ms)
  is_replaced = not has_ended and redis.call('XDEL', finest, replaced) == 1
end
if not is_replaced then
  local entry = written()
  if entry then return entry end
  if replaced ~= '' then return 'later' end
end
local entry = redis.call('XADD', finest, 'MAXLEN', '~', most, '*', 'facts', facts, 'write', write)
redis.call('PEXPIRE', finest, kept_ms)
if totals ~= '' then redis.call('SET', SERIES_TOTALS, totals, 'PX', kept_ms) end
return entry
