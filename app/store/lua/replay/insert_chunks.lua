-- insert_chunks: make room for chunks and write them, in insert_fragments and others (not a command of its own).
--
-- A plan is {fragments, chunks, victims: [ids of chunks to evict until there is room], freed: [ids of fragments that
-- waited and are dropped], counts: {total: increase}}. A fragment of a plan is {id, bytes, rest}; a chunk is {weight,
-- priority, version, session, bytes, fragments, rest, fragment_ids}. `rest` has more words of its entry.

-- Return the victims to evict so that the plan's chunks have room; nil if the victims are not enough. `of_chunks` and
-- `of_bytes` are {how many there are, how many there may be}.
local function victims_for(plan, of_chunks, of_bytes)
  local chunks, bytes = of_chunks[1], of_bytes[1]
  for _, chunk in ipairs(plan.chunks) do
    chunks, bytes = chunks + 1, bytes + chunk.bytes
  end
  local victims, seen, most_chunks, most_bytes = {}, {}, of_chunks[2], of_bytes[2] or math.huge
  for _, id in ipairs(plan.victims) do
    if chunks <= most_chunks and bytes <= most_bytes then break end
    local chunk = not seen[id] and chunk_of(id)
    seen[id] = true
    if chunk and (is_live(chunk) or chunk.place == 'archived') then
      victims[#victims + 1] = chunk
      chunks, bytes = chunks - 1, bytes - chunk.bytes
    end
  end
  if #plan.chunks == 0 or chunks <= most_chunks and bytes <= most_bytes then return victims end
end

local function insert_chunk(id, chunk, clock, entries)
  for _, fragment in ipairs(chunk.fragment_ids) do
    local entry = entries[fragment] or string.sub(redis.call('HGET', FRAGMENTS, fragment), 2)
    later('HSET', FRAGMENTS, fragment, id .. entry)
    entries[fragment] = nil
  end
  local words = string.format('%s %s %.0f %.0f %.0f %s %s', chunk.version, chunk.session, clock, chunk.bytes,
    chunk.fragments, chunk.rest, table.concat(chunk.fragment_ids, ','))
  local written = {id = id, uses = 0, held = 0, weight = tonumber(chunk.weight), priority = chunk.priority,
    version = chunk.version, rest = words}
  put(written, 'sampleable')
  write(written)
  count('chunks', 1)
  count('chunk_bytes', chunk.bytes)
  count('chunk_fragments', chunk.fragments)
  count('inserts', 1)
end

local function make_room(victims)
  for _, chunk in ipairs(victims) do evict(chunk) end
end

local function insert_plan(plan, clock)
  local entries = {}
  for _, fragment in ipairs(plan.fragments) do entries[fragment.id] = ' ' .. fragment.bytes .. ' ' .. fragment.rest end
  local arrivals = #plan.chunks > 0 and redis.call('HINCRBY', REPLAY, 'arrivals', #plan.chunks) - #plan.chunks
  for n, chunk in ipairs(plan.chunks) do
    insert_chunk(string.format('%012.0f', arrivals + n), chunk, clock, entries)
  end
  for id, entry in pairs(entries) do later('HSET', FRAGMENTS, id, '-' .. entry) end
  for _, id in ipairs(plan.freed) do forget_fragment(id) end
  for field, by in pairs(plan.counts) do count(field, by) end
  write_changes()
  redis.call('PUBLISH', RUN, 'inserted')
end
