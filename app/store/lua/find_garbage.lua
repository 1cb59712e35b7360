#!lua flags=allow-oom
-- find_garbage: tell which payloads nothing names any more; those that something does name are no garbage.
--
-- KEYS[1] unindexed  zset  payloads that are reserved or garbage
-- KEYS[2] run        hash  newest group, which is kept for /latest_example until a newer one comes
-- KEYS[3..] hash: each that names payloads
-- ARGV[1..] ids of payloads that may be garbage
--
-- Returns the ids that none of the hashes has: what several need is stored once, and goes with the last of them.
-- Cost: O(n log m), n the ids, m the unindexed payloads.
local hashes, garbage = {}, {}
for i = 3, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then hashes[#hashes + 1] = KEYS[i] end
end
local latest = redis.call('HGET', KEYS[2], 'latest')
for _, id in ipairs(ARGV) do
  local named = id == latest
  for _, hash in ipairs(hashes) do named = named or redis.call('HEXISTS', hash, id) == 1 end
  if named then redis.call('ZREM', KEYS[1], id) else garbage[#garbage + 1] = id end
end
return garbage
