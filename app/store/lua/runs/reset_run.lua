#!lua flags=allow-oom
-- reset_run: forget the run's configuration, environments, queue and leases; its its payloads are marked for deletion.
--
-- KEYS[1] run        hash  clock and epoch are kept
-- KEYS[2] marked_hashes  set   their tokens
-- KEYS[3] unreferenced  zset  payloads to delete
-- KEYS[4] lanes      hash  lane -> groups queued
-- KEYS[5] buffers    hash  lane -> groups buffered
-- KEYS[6] curricula          hash  curriculum -> its id
-- KEYS[7] curricula_loading  zset  ids of curricula that are being loaded
-- KEYS[8..] hash: each that names payloads, and its new name; then the keys that simply go: those of environments,
-- leases, and every lane, buffer and curriculum
-- ARGV[1] 1 to leave a run alone that was made under /v1, else 0
-- ARGV[2] hashes that name payloads   ARGV[3..] the tokens of their new names; then the lanes, buffers and curricula among
-- the keys: 'lane NAME', 'buffer NAME', 'curriculum ID'
--
-- Returns 1, also if there is no such run, 0 if one of these appeared meanwhile, or -1 if the run is left alone. At 0 and
-- -1 nothing has changed.
-- Cost: O(number of keys); values are freed in the background.
if redis.call('EXISTS', KEYS[1]) == 0 then return 1 end
if ARGV[1] == '1' and redis.call('HEXISTS', KEYS[1], 'made_by') == 1 then return -1 end
local named, hashes = {}, tonumber(ARGV[2])
for i = 3 + hashes, #ARGV do named[ARGV[i]] = true end
for _, name in ipairs(redis.call('HKEYS', KEYS[4])) do if not named['lane ' .. name] then return 0 end end
for _, name in ipairs(redis.call('HKEYS', KEYS[5])) do if not named['buffer ' .. name] then return 0 end end
for _, id in ipairs(redis.call('HVALS', KEYS[6])) do if not named['curriculum ' .. id] then return 0 end end
for _, id in ipairs(redis.call('ZRANGE', KEYS[7], 0, -1)) do if not named['curriculum ' .. id] then return 0 end end
local kept = redis.call('HMGET', KEYS[1], 'clock_ms', 'time_ms', 'epoch', 'latest')
for i = 1, hashes do
  local hash, marked_hash = KEYS[6 + 2 * i], KEYS[7 + 2 * i]
  if redis.call('EXISTS', hash) == 1 then
    redis.call('RENAME', hash, marked_hash)
    redis.call('SADD', KEYS[2], ARGV[2 + i])
  end
end
if kept[4] then redis.call('ZADD', KEYS[3], -1, kept[4]) end
redis.call('UNLINK', KEYS[1], unpack(KEYS, 4, 7))
for i = 8 + 2 * hashes, #KEYS do redis.call('UNLINK', KEYS[i]) end
redis.call('HSET', KEYS[1], 'clock_ms', kept[1] or 0, 'time_ms', kept[2] or 0)
-- Without an epoch nobody was ever registered, so nothing was decided on one; the next registration chooses it.
if kept[3] then redis.call('HSET', KEYS[1], 'epoch', kept[3] + 1) end
return 1
