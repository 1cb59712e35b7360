#!lua flags=allow-oom
-- reopen: forget that every request needs credentials, if no token has changed since the caller read them.
--
-- Returns 1, or 0 if a token has changed.
-- Cost: O(1).
--
local ACCESS = KEYS[1]  -- hash: generation, closed, `token:ID` -> JSON, `used:ID` -> time of last use, ms
local generation = ARGV[1]  -- that the caller read

if (redis.call('HGET', ACCESS, 'generation') or '0') ~= generation then return 0 end
redis.call('HDEL', ACCESS, 'closed')
return 1
