#!lua
-- drop_future: drop the entries of a series from a time on, and let it take new ones from that time on.
--
-- A stream takes no entry below the last id that it ever had, not even after XDEL. So it is written again.
--
-- Returns 1, or 0 if the series has no such entries; then nothing has changed.
-- Cost: O(n), n the entries of the series.
--
local series = KEYS[1]  -- stream: facts by time
local from_ms = ARGV[1]  -- the first time to drop
local kept_ms = ARGV[2]  -- how long the series is kept

if #redis.call('XRANGE', series, from_ms, '+', 'COUNT', 1) == 0 then return 0 end
local kept = redis.call('XRANGE', series, '-', '(' .. from_ms .. '-0')
redis.call('UNLINK', series)
for _, entry in ipairs(kept) do redis.call('XADD', series, entry[1], unpack(entry[2])) end
redis.call('PEXPIRE', series, kept_ms)
return 1
