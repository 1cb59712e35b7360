#!lua flags=allow-oom
-- drop_damaged: delete what keeps a run from being deleted: keys of a wrong type, and fields that are not numbers.
--
-- Returns 1 if it deleted a key, or RUN was missing: then nothing may name other keys any longer. Else 0.
-- Cost: O(1).
--
-- include rows
local RUN = KEYS[1]  -- hash: run clock, epoch
local CURRICULA_LOADING = KEYS[2]  -- zset: ids of curricula that are being loaded
local UNREFERENCED = KEYS[3]  -- zset: payloads that no index entry names
local MARKED_HASHES = KEYS[4]  -- set: tokens of marked hashes
local TURN = KEYS[5]  -- string: the process that plans batches
local TURN_QUEUE = KEYS[6]  -- list: the processes that wait for the turn
local HASHES = rest(KEYS, 7)  -- hash: the others that `reset_run` reads
-- include clock

local dropped = 0

-- Delete a key that this command cannot read.
local function drop_unless(command, key)
  local reply = redis.pcall(command, key)
  if type(reply) == 'table' and reply.err then dropped = redis.call('UNLINK', key) end
end

-- Lua counts exactly up to 15 digits.
local function is_number(text) return text and #text < 16 and string.match(text, '^%d+$') end

drop_unless('HLEN', RUN)
drop_unless('ZCARD', CURRICULA_LOADING)
drop_unless('ZCARD', UNREFERENCED)
drop_unless('SCARD', MARKED_HASHES)
redis.call('UNLINK', TURN, TURN_QUEUE)  -- without a time to live, they would stay
for _, key in ipairs(HASHES) do drop_unless('HLEN', key) end
for _, number in ipairs(redis.call('HMGET', RUN, 'clock_ms', 'time_ms', 'epoch')) do
  if not is_number(number) then redis.call('HDEL', RUN, 'clock_ms', 'time_ms', 'epoch', 'asleep_ms') end
end
if not is_number(redis.call('HGET', RUN, 'asleep_ms')) then redis.call('HDEL', RUN, 'asleep_ms') end
if redis.call('EXISTS', RUN) == 0 then dropped = 1 end
advance_clock(RUN)  -- `reset_run` does nothing without RUN
return dropped
