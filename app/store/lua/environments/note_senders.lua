-- note_senders: note when environments sent groups, and how many sequences they sent (not a command of its own).
--
local function note_senders(new, clock_ms)
  local sizes_of, sequences = {}, {}
  for _, n in ipairs(new) do
    local environment, size = submitted.environment[n], submitted.size[n]
    sizes_of[environment] = size
    sequences[environment] = (sequences[environment] or 0) + (is_stored(n) and size or 0)
  end
  sequences['-'] = nil
  for environment, sequences_now in pairs(sequences) do
    local before = string.match(redis.call('HGET', SENT, environment) or '0', '%d+$')
    local sent_now = string.format('%.0f %s %.0f', clock_ms, sizes_of[environment], before + sequences_now)
    later('HSET', SEEN, environment, clock_ms)
    later('HSET', SENT, environment, sent_now)
  end
end
