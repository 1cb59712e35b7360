-- token_queues: count what tokens with a limit of that have in the queue (not a command of its own).
--
-- Return the groups and the bytes that a token has in the queue.
local function read_token_queue(token)
  local groups, bytes = string.match(redis.call('HGET', TOKEN_QUEUES, token) or '0 0', '^(%d+) (%d+)$')
  return tonumber(groups), tonumber(bytes)
end

local function write_token_queue(token, groups, bytes)
  if groups == 0 then return redis.call('HDEL', TOKEN_QUEUES, token) end
  redis.call('HSET', TOKEN_QUEUES, token, string.format('%.0f %.0f', groups, bytes))
end

-- Count groups that leave the queue no longer. They may be of any sender.
local function leave_token_queues(ids)
  if redis.call('EXISTS', TOKEN_QUEUES) == 0 then return end
  local left, sums = {}, {}
  for n, sender in ipairs(read('HMGET', TOKEN_GROUPS, ids)) do
    if sender then
      local token, bytes = string.match(sender, '^(%S+) (%d+)$')
      local sum = sums[token] or {groups = 0, bytes = 0}
      sums[token] = {groups = sum.groups + 1, bytes = sum.bytes + bytes}
      left[#left + 1] = ids[n]
    end
  end
  for token, sum in pairs(sums) do
    local groups, bytes = read_token_queue(token)
    write_token_queue(token, groups - sum.groups, bytes - sum.bytes)
  end
  write_list('HDEL', TOKEN_GROUPS, left)
end
