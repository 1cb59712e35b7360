-- replay_holds: let samples hold chunks (not a command of its own).
--
local function hold(chunk, most_uses)
  chunk.held = chunk.held + 1
  if is_live(chunk) then place(chunk, most_uses) end
  write(chunk)
end

local function manifest_entry(chunk, uses, weight, draw)
  return string.format('["%s",%.0f,"%s","%s"]', chunk.id, uses, weight, draw)
end

-- Write a sample: its lease, its chunks (`manifest_entry`), and facts about its draw as JSON. Return its JSON.
local function note_sample(id, lease, manifest, facts)
  local sample = string.format('{"chunks":[%s],"facts":%s}', table.concat(manifest, ','), facts)
  redis.call('HSET', SAMPLES, id, sample)
  redis.call('HSET', SAMPLE_STATES, id, lease)
  count('samples', #manifest)
  return sample
end

-- Let a sample hold its chunks again after the buffer was restored. Skip chunks that the restored buffer does not have.
local function hold_again(one, most_uses)
  local manifest, ids, entries = {}, {}, {}
  for n, entry in ipairs(cjson.decode(one.sample).chunks) do
    local chunk_id = unpack(entry)
    ids[n], entries[chunk_id] = chunk_id, entry
  end
  for n, chunk in ipairs(chunks_of(ids)) do
    local _, uses, weight, draw = unpack(entries[chunk.id])
    manifest[n] = manifest_entry(chunk, uses, weight, draw)
    hold(chunk, most_uses)
  end
  if #manifest > 0 then note_sample(one.id, one.lease, manifest, string.match(one.sample, '"facts":(.*)}$')) end
  write_changes()
end
