#!lua flags=allow-oom
-- reset_run: forget the run's configuration, environments, queue and leases; its payloads are marked for deletion.
--
-- Returns 1, also if there is no such run, or an earlier call reset it. Or, with nothing changed: 0 if the epoch has
-- changed since the keys were read, or a lane, buffer or curriculum appeared; -1 if an argument spares the run.
-- Cost: O(number of keys); Redis frees the values in the background.
--
-- include rows
local RUN = KEYS[1]  -- hash: clock and epoch are kept; `reset_by`: first token of the latest reset
local MARKED_HASHES = KEYS[2]  -- set: tokens of marked hashes
local UNREFERENCED = KEYS[3]  -- zset: payloads to delete
local LANES = KEYS[4]  -- hash: lane -> groups queued
local BUFFERS = KEYS[5]  -- hash: lane -> groups buffered
local CURRICULA = KEYS[6]  -- hash: curriculum -> its id
local CURRICULA_LOADING = KEYS[7]  -- zset: ids of curricula that are being loaded
local LIMITS = KEYS[8]  -- hash: limits of runs
local spare_native = ARGV[1]  -- 1 to keep a run that was made under /v1, else 0
local spare_archived = ARGV[2]  -- 1 to keep an archived run, else 0
local tokens = cjson.decode(ARGV[3])  -- JSON list: the tokens of the marked hashes
local name = ARGV[4]  -- of the run
local epoch = ARGV[5]  -- at which the keys were read: a late call must spare a run that was made again
local payload_hashes = rows(KEYS, 9, {'hash', 'marked_hash'}, #tokens)  -- the hashes that name payloads
local DELETED = rest(KEYS, 9 + 2 * #tokens)  -- every other key of the run
local names = rest(ARGV, 6)  -- what is in DELETED: 'lane NAME', 'buffer NAME', 'curriculum ID'
-- include clock
-- include next_number
-- include epoch
-- include run_limits

if redis.call('EXISTS', RUN) == 0 then return 1 end
if redis.call('HGET', RUN, 'reset_by') == tokens[1] then return 1 end
if (redis.call('HGET', RUN, 'epoch') or '0') ~= epoch then return 0 end
if spare_native == '1' and redis.call('HEXISTS', RUN, 'made_by') == 1 then return -1 end
local policy = spare_archived == '1' and redis.call('HGET', RUN, 'policy')
if policy and cjson.decode(policy).archived then return -1 end
local named = {}
for _, name in ipairs(names) do named[name] = true end
for _, name in ipairs(redis.call('HKEYS', LANES)) do if not named['lane ' .. name] then return 0 end end
for _, name in ipairs(redis.call('HKEYS', BUFFERS)) do if not named['buffer ' .. name] then return 0 end end
for _, id in ipairs(redis.call('HVALS', CURRICULA)) do if not named['curriculum ' .. id] then return 0 end end
for _, id in ipairs(redis.call('ZRANGE', CURRICULA_LOADING, 0, -1)) do
  if not named['curriculum ' .. id] then return 0 end
end
advance_clock(RUN)
local kept = redis.call('HMGET', RUN, 'clock_ms', 'time_ms', 'epoch', 'latest')
for i, pair in ipairs(payload_hashes) do
  if redis.call('EXISTS', pair.hash) == 1 then
    redis.call('RENAME', pair.hash, pair.marked_hash)
    redis.call('SADD', MARKED_HASHES, tokens[i])
  end
end
if kept[4] then redis.call('ZADD', UNREFERENCED, -1, kept[4]) end
put_run_limits(LIMITS, name, '')
redis.call('UNLINK', RUN, LANES, BUFFERS, CURRICULA, CURRICULA_LOADING)
for _, key in ipairs(DELETED) do redis.call('UNLINK', key) end
redis.call('HSET', RUN, 'clock_ms', kept[1], 'time_ms', kept[2], 'reset_ms', kept[1], 'reset_by', tokens[1])
if kept[3] then redis.call('HSET', RUN, 'epoch', kept[3]) end
next_epoch(RUN)  -- submissions that are repeated after this are outdated: the run no longer knows their groups
return 1
