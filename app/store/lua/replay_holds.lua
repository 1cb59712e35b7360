-- replay_holds: how samples come to hold chunks (not a command of its own).
--
local function hold(chunk, most_uses)
  chunk.held = chunk.held + 1
  if chunk.place ~= 'past' then place(chunk, most_uses) end
  write(chunk)
end

local function manifest_entry(chunk, uses, weight, draw)
  return string.format('["%s",%.0f,"%s","%s"]', chunk.id, uses, weight, draw)
end

-- Write down a sample: its lease, the entries of its chunks, JSON of what it was drawn on. Returns the JSON of all that.
local function note_sample(id, lease, manifest, facts)
  local sample = string.format('{"chunks":[%s],"facts":%s}', table.concat(manifest, ','), facts)
  redis.call('HSET', SAMPLES, id, sample)
  redis.call('HSET', SAMPLE_STATES, id, lease)
  count('samples', #manifest)
  return sample
end
