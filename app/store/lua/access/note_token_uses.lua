#!lua
-- note_token_uses: record when tokens were last used.
--
-- Returns nothing.
-- Cost: O(n), n the tokens.
--
-- include rows
local ACCESS = KEYS[1]  -- hash: `token:ID` -> JSON, `used:ID` -> time of last use, ms
local uses = rows(ARGV, 1, {'token_id', 'used_ms'})

for _, use in ipairs(uses) do
  local field = 'used:' .. use.token_id
  local known = redis.call('HEXISTS', ACCESS, 'token:' .. use.token_id) == 1
  local before = tonumber(redis.call('HGET', ACCESS, field) or '0')
  if known and before < tonumber(use.used_ms) then redis.call('HSET', ACCESS, field, use.used_ms) end
end
