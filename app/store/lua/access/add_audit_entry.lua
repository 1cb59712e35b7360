#!lua flags=allow-oom
-- add_audit_entry: add an entry to the audit trail, also while the memory is full: deletions must be in it.
--
-- A sender has some entries of its own in each hour. Beyond them, equal actions of the sender are one entry with a
-- count, which is written again each time. So cheap requests of one sender leave the entries of others in place.
--
-- Returns nothing. Of the oldest entries, about those beyond the limit go.
-- Cost: O(1).
--
local AUDIT = KEYS[1]  -- stream: `entry` JSON, `count` how many requests it stands for
local AUDIT_SENDERS = KEYS[2]  -- hash, for an hour: `SENDER` -> its entries, `ACTION SENDER` -> `id count`
local most = ARGV[1]  -- about how many entries to keep
local own = ARGV[2]  -- entries of its own of a sender in an hour
local sender = ARGV[3]  -- who did it; begins with a newline, which is in no action
local action = ARGV[4]  -- what was done
local entry = ARGV[5]  -- JSON

local count, together = 1, own == '0'
if not together then together = redis.call('HINCRBY', AUDIT_SENDERS, sender, 1) > tonumber(own) end
if together then
  local id, before = string.match(redis.call('HGET', AUDIT_SENDERS, action .. sender) or '', '^(%S+) (%d+)$')
  if id then
    redis.call('XDEL', AUDIT, id)
    count = before + 1
  end
end
local id = redis.call('XADD', AUDIT, 'MAXLEN', '~', most, '*', 'entry', entry, 'count', string.format('%.0f', count))
if together then redis.call('HSET', AUDIT_SENDERS, action .. sender, id .. ' ' .. string.format('%.0f', count)) end
redis.call('PEXPIRE', AUDIT_SENDERS, 3600000, 'NX')
