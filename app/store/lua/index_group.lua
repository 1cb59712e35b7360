-- index_group: one group of admit_groups, which includes this and whose KEYS and ARGV these are.
--
local function is_stored(where) return where == 'queued' or where == 'buffered' end

-- What a group is: 'new'; 'written' by the same command before, whose answer was lost; 'repeated' by its sender, and what
-- became of it the first time; or why it can not be admitted.
local function outcome_of(payload, group, where, bytes, checksum, environment, version, given)
  local first, outcome, contents = string.match(redis.call('HGET', KEYS[10], given) or '', '^(%S+) (%S+) (%S+)$')
  if first and first ~= group then return contents == checksum and 'repeated ' .. outcome or 'exists' end
  if redis.call('ZSCORE', KEYS[2], group) then return 'written' end
  local reserved = tonumber(redis.call('ZSCORE', KEYS[3], group) or -1) >= 0
  local there = redis.call('STRLEN', payload) == tonumber(bytes)
  return (reserved and there or not is_stored(where)) and 'new' or 'outdated'
end

-- A payload that was written again is garbage if its group has left since, or if its sender's group has another.
local function index_group(outcome, clock, place, group, lane, where, bytes, checksum, environment, version, given)
  if outcome ~= 'new' then
    local held = redis.call('HEXISTS', KEYS[4], group) == 1 or redis.call('HGET', KEYS[1], 'latest') == group
    if is_stored(where) and not held then redis.call('ZADD', KEYS[3], -1, group) end
    return
  end
  redis.call('ZADD', KEYS[2], clock, group)
  redis.call('HINCRBY', KEYS[1], 'accepted_groups', 1)
  if given ~= '-' then
    redis.call('HSET', KEYS[10], given, group .. ' ' .. where .. ' ' .. checksum)
    redis.call('ZADD', KEYS[11], clock + ARGV[3], given)
  end
  if environment ~= '-' then
    local size = string.match(lane, '%d+$')
    local before = string.match(redis.call('HGET', KEYS[6], environment) or '0', '%d+$')
    redis.call('HSET', KEYS[5], environment, clock)
    redis.call('HSET', KEYS[6], environment, string.format('%.0f %s %.0f', clock, size, before + size))
  end
  local entry = string.format('%s %s %.0f %s %s %s', bytes, checksum, clock, lane, version, given)
  if not is_stored(where) then
    redis.call('HINCRBY', KEYS[12], where .. ':' .. environment, 1)
    redis.call('HSET', KEYS[13], group, string.format('%s - - %.0f %s', where, clock, entry))
    redis.call('ZADD', KEYS[14], clock + ARGV[4], group)
    return
  end
  redis.call('ZADD', place, redis.call('HINCRBY', KEYS[1], 'arrivals', 1), group)
  redis.call('HINCRBY', where == 'queued' and KEYS[7] or KEYS[8], lane, 1)
  redis.call('HSET', KEYS[4], group, entry)
  if version ~= '-' then redis.call('ZADD', KEYS[9], version, group) end
  redis.call('ZREM', KEYS[3], group)
  redis.call('HINCRBY', KEYS[1], where .. '_groups', 1)
  redis.call('HINCRBY', KEYS[1], where .. '_bytes', bytes)
  local latest = redis.call('HGET', KEYS[1], 'latest')
  if latest and redis.call('HEXISTS', KEYS[4], latest) == 0 then redis.call('ZADD', KEYS[3], -1, latest) end
  redis.call('HSET', KEYS[1], 'latest', group)
end
