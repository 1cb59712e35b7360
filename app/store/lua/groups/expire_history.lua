#!lua flags=allow-oom
-- expire_history: forget groups and batches that left or ended long ago.
--
-- While its batch is kept for a rewind, a group that has left is still held. This script looks at it again later.
--
-- Returns how many it looked at.
-- Cost: O(n log m), n those whose time has come, m the batches remembered.
--
local RUN = KEYS[1]  -- hash: run clock, how long groups are remembered
local GROUPS = KEYS[2]  -- hash: group id -> entry
local KNOWN = KEYS[3]  -- hash: name of a group -> its id, and how it ended
local LEFT = KEYS[4]  -- list: 'clock_ms name name ...' of groups that have left
local HISTORY = KEYS[5]  -- hash: batch or sample id -> how it ended
local ENDED = KEYS[6]  -- zset: those ids and steps by the run clock at which they are forgotten, ms
local ANNOTATIONS = KEYS[7]  -- hash: name of a group -> its id and names; name of a group and annotation -> values
local most = ARGV[1]  -- most groups, and most batches and samples, in one call
local remembered_ms = ARGV[2]  -- how long groups are remembered if the run does not say, ms
-- include bulk
-- include group_entry
-- include group_names
-- include group_annotations

local run = redis.call('HMGET', RUN, 'clock_ms', 'remembered_ms')
local clock, looked_at = tonumber(run[1] or 0), 0
local before_ms = clock - tonumber(run[2] or remembered_ms)

-- Forget the groups that left last at this record. A group that left again later has a later record, too.
local function forget_groups(names, record_ms)
  local held, forgotten = {}, {}
  for i, record in ipairs(read('HMGET', KNOWN, names)) do
    local left = parse_left(record or '')
    if left and tonumber(left.left_ms or entry_word(left.entry, 'accepted_ms')) <= record_ms then
      local kept = redis.call('HEXISTS', GROUPS, left.id) == 1 and held or forgotten
      kept[#kept + 1] = names[i]
    end
  end
  for _, name in ipairs(forgotten) do later('HDEL', KNOWN, name) end
  forget_annotations(RUN, ANNOTATIONS, forgotten)
  note_left(LEFT, held, clock)
end

while looked_at < tonumber(most) do
  local item = redis.call('LINDEX', LEFT, 0)
  local left_ms, text = string.match(item or '', '^(%d+) (.*)$')
  if not left_ms or tonumber(left_ms) > before_ms then break end
  local names = {}
  for name in string.gmatch(text, '%S+') do names[#names + 1] = name end
  redis.call('LPOP', LEFT)
  forget_groups(names, tonumber(left_ms))
  looked_at = looked_at + #names
end
flush()
for _, id in ipairs(redis.call('ZRANGEBYSCORE', ENDED, '-inf', clock, 'LIMIT', 0, most)) do
  redis.call('HDEL', HISTORY, id)
  redis.call('ZREM', ENDED, id)
  looked_at = looked_at + 1
end
return looked_at
