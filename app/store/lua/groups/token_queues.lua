-- token_queues: count groups and bytes queued by each account that has a queue limit (not a command of its own).
--
-- Return the groups and the bytes that an account has in the queue.
local function read_token_queue(account)
  local groups, bytes = string.match(redis.call('HGET', TOKEN_QUEUES, account) or '0 0', '^(%d+) (%d+)$')
  return tonumber(groups), tonumber(bytes)
end

local function write_token_queue(account, groups, bytes)
  if groups == 0 then return redis.call('HDEL', TOKEN_QUEUES, account) end
  redis.call('HSET', TOKEN_QUEUES, account, string.format('%.0f %.0f', groups, bytes))
end

-- Stop counting groups that leave the queue. Groups of accounts without a limit are skipped.
local function leave_token_queues(ids)
  if redis.call('EXISTS', TOKEN_QUEUES) == 0 then return end
  local left, sums = {}, {}
  for n, sender in ipairs(read('HMGET', TOKEN_GROUPS, ids)) do
    if sender then
      local account, bytes = string.match(sender, '^(%S+) (%d+)$')
      local sum = sums[account] or {groups = 0, bytes = 0}
      sums[account] = {groups = sum.groups + 1, bytes = sum.bytes + bytes}
      left[#left + 1] = ids[n]
    end
  end
  for account, sum in pairs(sums) do
    local groups, bytes = read_token_queue(account)
    write_token_queue(account, groups - sum.groups, bytes - sum.bytes)
  end
  write_list('HDEL', TOKEN_GROUPS, left)
end
