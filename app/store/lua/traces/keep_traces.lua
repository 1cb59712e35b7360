#!lua
-- keep_traces: keep the trace context of submitted groups, or of a batch, for the newest names of a run.
--
-- Returns 1, or 0 if there is no such run; then nothing is kept.
-- Cost: O(n), n the names.
--
-- include rows
-- include keep_newest
local RUN = KEYS[1]  -- hash: configuration, totals
local TRACES = KEYS[2]  -- hash: name of a group or batch -> its trace context
local TRACED = KEYS[3]  -- list: these names, the oldest first
local most = ARGV[1]  -- most names to keep
local kept_ms = ARGV[2]  -- how long they are kept after the last trace
local context = ARGV[3]  -- value of a `traceparent` header
local names = rest(ARGV, 4)

if redis.call('HEXISTS', RUN, 'config') == 0 then return 0 end
for _, name in ipairs(names) do keep_newest(TRACES, TRACED, name, context, most) end
redis.call('PEXPIRE', TRACES, kept_ms)
redis.call('PEXPIRE', TRACED, kept_ms)
return 1
