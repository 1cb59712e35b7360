#!lua flags=allow-oom
-- mark_closed: note that every request needs credentials. The note stays if sources of identities are lost.
--
-- Returns nothing.
-- Cost: O(1).
--
local ACCESS = KEYS[1]  -- hash: generation, closed, `token:ID` -> JSON, `used:ID` -> time of last use, ms

redis.call('HSET', ACCESS, 'closed', '1')
