-- token_limits: hold submissions to what their tokens may have in the queue (not a command of its own).
--
local limits, queues, token_of = {}, {}, {}  -- by submission; by token, as far as it is read; by new group
for _, limit in ipairs(limited) do limits[limit.submission] = limit end

-- Return what a token has in the queue, with the groups that are admitted here.
local function queue_of(token)
  if not queues[token] then
    local groups, bytes = read_token_queue(token)
    queues[token] = {groups = groups, bytes = bytes}
  end
  return queues[token]
end

local function exceeds(limit, amount) return limit ~= cjson.null and amount > limit end

-- Count those groups of a submission that will be in the queue; return why they may not be. Most have no limit.
local function count_for_token(submission, first, last, outcomes)
  local limit, new, bytes = limits[submission], {}, 0
  if not limit then return nil end
  for n = first, last do
    if outcomes[n] == 'new' and is_stored(n) then new[#new + 1], bytes = n, bytes + submitted.payload_bytes[n] end
  end
  local queue = queue_of(limit.token)
  if #new > 0 and queue.groups > 0 then
    local name = exceeds(limit.max_groups, queue.groups + #new) and 'max_queued_groups'
      or exceeds(limit.max_bytes, queue.bytes + bytes) and 'max_queued_bytes'
    if name then return string.format('token_full %s %.0f %.0f', name, queue.groups, queue.bytes) end
  end
  for _, n in ipairs(new) do token_of[n] = limit.token end
  queue.groups, queue.bytes = queue.groups + #new, queue.bytes + bytes
end

-- Write what was counted.
local function write_token_groups()
  for n, token in pairs(token_of) do
    later('HSET', TOKEN_GROUPS, submitted.group_id[n], token .. ' ' .. submitted.payload_bytes[n])
  end
  for token, queue in pairs(queues) do write_token_queue(token, queue.groups, queue.bytes) end
end
