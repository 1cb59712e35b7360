#!lua flags=allow-oom
-- add_audit_entry: add an entry to the audit trail, even if the memory is full: the trail must have all deletions.
--
-- The first requests of a sender in an hour get an entry each. After them, equal actions of the sender share one entry
-- with a count, and each action writes this entry again. So many requests of one sender do not displace other entries.
--
-- A repeated command adds nothing, unless many other entries have been added in between.
--
-- Returns nothing. Redis deletes the oldest entries beyond about `most`.
-- Cost: O(1).
--
local AUDIT = KEYS[1]  -- stream: `entry` JSON, `count` how many requests it stands for, `write` of the newest of them
local AUDIT_SENDERS = KEYS[2]  -- hash, for an hour: `SENDER` -> its entries, `ACTION SENDER` -> `id count`
local most = ARGV[1]  -- about how many entries to keep
local own = ARGV[2]  -- requests of a sender in an hour that get an entry each
local sender = ARGV[3]  -- who sent the request; begins with a newline, which no action contains
local action = ARGV[4]  -- what the request does
local entry = ARGV[5]  -- JSON
local write = ARGV[6]  -- unique name of this write

for _, newest in ipairs(redis.call('XREVRANGE', AUDIT, '+', '-', 'COUNT', 16)) do
  if newest[2][6] == write then return end
end

local count, together = 1, own == '0'
if not together then together = redis.call('HINCRBY', AUDIT_SENDERS, sender, 1) > tonumber(own) end
if together then
  local id, before = string.match(redis.call('HGET', AUDIT_SENDERS, action .. sender) or '', '^(%S+) (%d+)$')
  if id then
    redis.call('XDEL', AUDIT, id)
    count = before + 1
  end
end
count = string.format('%.0f', count)
local id = redis.call('XADD', AUDIT, 'MAXLEN', '~', most, '*', 'entry', entry, 'count', count, 'write', write)
if together then redis.call('HSET', AUDIT_SENDERS, action .. sender, id .. ' ' .. count) end
redis.call('PEXPIRE', AUDIT_SENDERS, 3600000, 'NX')
