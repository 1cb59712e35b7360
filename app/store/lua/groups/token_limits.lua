-- token_limits: refuse submissions that exceed the queue limits of their accounts (not a command of its own).
--
local limits, queues, account_of = {}, {}, {}  -- limits by submission, queues by account, accounts by new group
for _, limit in ipairs(limited) do limits[limit.submission] = limit end

-- Return what an account has in the queue, with the groups that this command has admitted so far.
local function queue_of(account)
  if not queues[account] then
    local groups, bytes = read_token_queue(account)
    queues[account] = {groups = groups, bytes = bytes}
  end
  return queues[account]
end

local function exceeds(limit, amount) return limit ~= cjson.null and amount > limit end

-- Count the groups that a submission adds to the queue, or return why it is refused. Most submissions have no limit.
local function count_for_account(submission, first, last, outcomes)
  local limit, new, bytes = limits[submission], {}, 0
  if not limit then return nil end
  for n = first, last do
    if outcomes[n] == 'new' and is_stored(n) then new[#new + 1], bytes = n, bytes + submitted.payload_bytes[n] end
  end
  local queue = queue_of(limit.account)
  if #new > 0 and queue.groups > 0 then
    local name = exceeds(limit.max_groups, queue.groups + #new) and 'max_queued_groups'
      or exceeds(limit.max_bytes, queue.bytes + bytes) and 'max_queued_bytes'
    if name then return string.format('account_full %s %.0f %.0f', name, queue.groups, queue.bytes) end
  end
  for _, n in ipairs(new) do account_of[n] = limit.account end
  queue.groups, queue.bytes = queue.groups + #new, queue.bytes + bytes
end

-- Write the new counts of accounts, and the account of each new group.
local function write_token_groups()
  for n, account in pairs(account_of) do
    later('HSET', TOKEN_GROUPS, submitted.group_id[n], account .. ' ' .. submitted.payload_bytes[n])
  end
  for account, queue in pairs(queues) do write_token_queue(account, queue.groups, queue.bytes) end
end
