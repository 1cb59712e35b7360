#!lua flags=allow-oom
-- mark_closed: note whether every request needs credentials. The note stays if sources of identities are lost.
--
-- Returns nothing.
-- Cost: O(1).
--
local ACCESS = KEYS[1]  -- hash: generation, closed, `token:ID` -> JSON, `used:ID` -> time of last use, ms
local closed = ARGV[1]  -- '1' or '0'

if closed == '1' then
  redis.call('HSET', ACCESS, 'closed', '1')
else
  redis.call('HDEL', ACCESS, 'closed')
end
