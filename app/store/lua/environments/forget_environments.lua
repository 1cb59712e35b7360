#!lua flags=allow-oom
-- forget_environments: forget environments without members and groups; their counts move to '-'.
--
-- KEYS[1] run            hash  epoch
-- KEYS[2] environments   hash  environment id -> JSON record
-- KEYS[3] seen           hash  environment id -> run clock at its last sign of life, ms
-- KEYS[4] sent           hash  environment id -> 'clock_ms size sequences'
-- KEYS[5] served         hash  environment id or '-' -> sequences handed out in batches
-- KEYS[6] dropped        hash  'reason:environment' -> groups
-- KEYS[7] member_counts  hash  environment id -> its live members
-- ARGV[1] epoch decided on   ARGV per environment from 2 on: its id; its `sent`, or ''; the number of reasons for which
-- its groups were dropped; these reasons
--
-- Returns 1, or 0 if something joined, changed or arrived since the decision; then nothing has changed.
-- Cost: O(number of arguments).
if (redis.call('HGET', KEYS[1], 'epoch') or '0') ~= ARGV[1] then return 0 end
local forgotten, i = {}, 2
while i <= #ARGV do
  local one = {id = ARGV[i], reasons = {}}
  for n = 1, tonumber(ARGV[i + 2]) do one.reasons[n] = ARGV[i + 2 + n] end
  if (redis.call('HGET', KEYS[4], one.id) or '') ~= ARGV[i + 1] then return 0 end
  if redis.call('HEXISTS', KEYS[7], one.id) == 1 then return 0 end
  forgotten[#forgotten + 1], i = one, i + 3 + #one.reasons
end

local function fold(key, from, into)
  local counted = redis.call('HGET', key, from)
  if not counted then return end
  redis.call('HINCRBY', key, into, counted)
  redis.call('HDEL', key, from)
end

for _, one in ipairs(forgotten) do
  fold(KEYS[5], one.id, '-')
  for _, reason in ipairs(one.reasons) do fold(KEYS[6], reason .. ':' .. one.id, reason .. ':-') end
  for key = 2, 4 do redis.call('HDEL', KEYS[key], one.id) end
end
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
return 1
