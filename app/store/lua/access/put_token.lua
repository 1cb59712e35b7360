#!lua flags=allow-oom
-- put_token: create, change or forget a token, if its record is as the caller read it.
--
-- Returns 1 if the record is as wanted, 0 if another request changed it, -1 if there are too many tokens. Each change
-- starts a new generation, so that processes read tokens again. After a new token, requests need authentication.
-- Cost: O(1).
--
local ACCESS = KEYS[1]  -- hash: generation, closed, `token:ID` -> JSON, `used:ID` -> time of last use, ms
local token_id = ARGV[1]
local seen = ARGV[2]  -- the record as it was read; '' if there was none
local new = ARGV[3]  -- the record from now on; '' to forget it
local most = ARGV[4]  -- most tokens that may exist
-- include next_number

local field = 'token:' .. token_id
local present = redis.call('HGET', ACCESS, field) or ''
if present == new then return 1 end  -- an earlier call made this change
if present ~= seen then return 0 end
if new == '' then
  redis.call('HDEL', ACCESS, field, 'used:' .. token_id)
  redis.call('HINCRBY', ACCESS, 'tokens', -1)
else
  if present == '' then
    if tonumber(redis.call('HGET', ACCESS, 'tokens') or '0') >= tonumber(most) then return -1 end
    redis.call('HINCRBY', ACCESS, 'tokens', 1)
    redis.call('HSET', ACCESS, 'closed', '1')
  end
  redis.call('HSET', ACCESS, field, new)
end
next_number(ACCESS, 'generation')
return 1
