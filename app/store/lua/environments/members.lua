-- members: the worker processes of environments, and how many groups they run (not a command of its own).
--
-- members        hash  'environment:member' -> 'joined_ms running_groups permits retries'; retries may be '-'
-- members_heard  zset  the same members by the run clock at their last sign of life, ms
-- member_counts  hash  environment id -> its live members
-- running        hash  environment id -> groups that its members run
-- started        hash  environment id -> groups that its members have started, with ended ones; while it has members
local m = {members = MEMBERS, heard = MEMBERS_HEARD, counts = MEMBER_COUNTS, running = RUNNING, started = STARTED}

-- Add to a counter, and remove it at 0. Return whether it was removed.
local function count(key, environment, by)
  if by == 0 or redis.call('HINCRBY', key, environment, by) ~= 0 then return false end
  redis.call('HDEL', key, environment)
  return true
end

-- Return a member; nil if there is no such member. A record that an earlier version of the service wrote has no
-- permits: then all its running groups count as permitted.
local function member_of(m, name)
  local record = redis.call('HGET', m.members, name)
  if not record then return nil end
  local joined_ms, running, permits, retries = string.match(record, '^(%d+) (%d+) ?(%d*) ?(%d*)')
  return {
    name = name,
    environment = string.match(name, '^%d+'),
    joined_ms = joined_ms,
    running = tonumber(running),
    permits = tonumber(permits) or tonumber(running),
    retries = retries == '' and '-' or retries,
  }
end

-- Write how many groups a member runs, how many of them have a permit, and how many requests it repeated.
local function write_member(m, member, groups, permits, retries)
  count(m.running, member.environment, groups - member.running)
  member.running, member.permits, member.retries = groups, permits, retries
  local record = string.format('%s %.0f %.0f %s', member.joined_ms, groups, permits, retries)
  redis.call('HSET', m.members, member.name, record)
end

-- Remove a member. Return whether it existed.
local function remove_member(m, name)
  local member = member_of(m, name)
  redis.call('ZREM', m.heard, name)
  if not member then return false end
  count(m.running, member.environment, -member.running)
  if count(m.counts, member.environment, -1) then redis.call('HDEL', m.started, member.environment) end
  redis.call('HDEL', m.members, name)
  return true
end
