#!lua flags=allow-oom
-- reset_run: forget the run's configuration, environments, queue and leases; its payloads become trash.
--
-- KEYS[1] run        hash  clock and epoch are kept
-- KEYS[2] groups     hash  becomes KEYS[3]
-- KEYS[3] trashed    hash  new name of the groups hash
-- KEYS[4] fragments  hash  becomes KEYS[5]
-- KEYS[5] trashed    hash  new name of the fragments hash
-- KEYS[6] trash      set   tokens of trashed hashes
-- KEYS[7] unindexed  zset  payloads to remove
-- KEYS[8] lanes      hash  lane -> groups queued
-- KEYS[9] buffers    hash  lane -> groups buffered
-- KEYS[10] curricula          hash  curriculum -> its id
-- KEYS[11] curricula_loading  zset  ids of curricula that are being loaded
-- KEYS[12..] the keys that simply go: those of environments, leases, and every lane, buffer and curriculum
-- ARGV[1], ARGV[2] tokens of the trashed hashes   ARGV[3..] the lanes, buffers and curricula among the keys: 'lane NAME',
-- 'buffer NAME', 'curriculum ID'
--
-- Returns 1, also for a run that is not there, or 0 if one of these appeared meanwhile; then nothing has changed.
-- Cost: O(number of keys); values are freed in the background.
if redis.call('EXISTS', KEYS[1]) == 0 then return 1 end
local named = {}
for i = 3, #ARGV do named[ARGV[i]] = true end
for _, name in ipairs(redis.call('HKEYS', KEYS[8])) do if not named['lane ' .. name] then return 0 end end
for _, name in ipairs(redis.call('HKEYS', KEYS[9])) do if not named['buffer ' .. name] then return 0 end end
for _, id in ipairs(redis.call('HVALS', KEYS[10])) do if not named['curriculum ' .. id] then return 0 end end
for _, id in ipairs(redis.call('ZRANGE', KEYS[11], 0, -1)) do if not named['curriculum ' .. id] then return 0 end end
local kept = redis.call('HMGET', KEYS[1], 'clock_ms', 'time_ms', 'epoch', 'latest')
for i = 1, 2 do
  if redis.call('EXISTS', KEYS[2 * i]) == 1 then
    redis.call('RENAME', KEYS[2 * i], KEYS[2 * i + 1])
    redis.call('SADD', KEYS[6], ARGV[i])
  end
end
if kept[4] then redis.call('ZADD', KEYS[7], -1, kept[4]) end
redis.call('UNLINK', KEYS[1], unpack(KEYS, 8, 11))
for i = 12, #KEYS do redis.call('UNLINK', KEYS[i]) end
redis.call('HSET', KEYS[1], 'clock_ms', kept[1] or 0, 'time_ms', kept[2] or 0)
-- Without an epoch nobody was ever registered, so nothing was decided on one; the next registration chooses it.
if kept[3] then redis.call('HSET', KEYS[1], 'epoch', kept[3] + 1) end
return 1
