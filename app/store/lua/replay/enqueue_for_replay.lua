-- enqueue_for_replay: let groups of an acknowledged batch enter the replay buffer (not a command of its own).
--
-- The buffer holds them as fragments without a chunk until insert_groups makes chunks of them. A group enters a buffer
-- once, even if its batch is rewound: its entry in GROUPS names the buffer. A buffer that is made again or restored
-- counts as another buffer, because it may not have the group.
local function enqueue_for_replay(batch)
  local config, session, restored = unpack(redis.call('HMGET', REPLAY, 'config', 'session', 'restored'))
  if not config or not cjson.decode(config).groups then return 0 end
  local current, own, entered = redis.call('HGET', RUN, 'policy_version') or '0', restored or 'first', 0
  for _, group in ipairs(batch) do
    local id, entry = group.group_id, redis.call('HGET', GROUPS, group.group_id)
    local fresh = entry and entry_word(entry, 'replay_buffer') ~= own
    if fresh and redis.call('HEXISTS', REPLAY_FRAGMENTS, id) == 0 then
      redis.call('HSET', GROUPS, id, with_entry_word(entry, 'replay_buffer', own))
      local number = redis.call('HINCRBY', REPLAY, 'entered_groups', 1)
      local bytes, checksum = entry_word(entry, 'payload_bytes'), entry_word(entry, 'checksum')
      local version, facts = entry_word(entry, 'policy_version') or current, cjson.encode({entry = entry})
      local words = string.format('- %s %s - %s %.0f %s %s', bytes, checksum, session, number, version, facts)
      redis.call('HSET', REPLAY_FRAGMENTS, id, words)
      redis.call('ZADD', REPLAY_ENTERING, number, id)
      for total, by in pairs({accepted_fragments = 1, waiting_fragments = 1, waiting_bytes = bytes}) do
        redis.call('HINCRBY', REPLAY, total, by)
      end
      entered = entered + 1
    end
  end
  return entered
end
