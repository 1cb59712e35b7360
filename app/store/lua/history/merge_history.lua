#!lua
-- merge_history: add a span, summed up from a finer series, to a coarser series, once, and drop old entries.
--
-- Returns 1, or 0 if the coarser series has this span or a later one; then nothing is added.
-- Cost: O(n), n the entries that are dropped.
--
local fine = KEYS[1]  -- stream: facts by time
local coarse = KEYS[2]  -- stream: facts by time
local begin_ms = ARGV[1]  -- when the span begins
local facts = ARGV[2]
local fine_before_ms = ARGV[3]  -- entries of the finer series before this time are dropped
local coarse_before_ms = ARGV[4]  -- entries of the coarser series before this time are dropped
local kept_ms = ARGV[5]  -- how long the coarser series is kept after its last entry

if redis.call('EXISTS', fine) == 0 then return 0 end
local last = redis.call('XREVRANGE', coarse, '+', '-', 'COUNT', 1)[1]
if last and tonumber(string.match(last[1], '^%d+')) >= tonumber(begin_ms) then return 0 end
redis.call('XADD', coarse, begin_ms .. '-0', 'facts', facts)
redis.call('PEXPIRE', coarse, kept_ms)
redis.call('XTRIM', fine, 'MINID', fine_before_ms)
redis.call('XTRIM', coarse, 'MINID', coarse_before_ms)
return 1
