#!lua flags=allow-oom
-- take_sample: give chunks to a new sample in the order of its draws, each once, and reserve a use of each.
--
-- KEYS[1] run  hash, and KEYS[2..23], the replay buffer's: replay_keys names them
-- ARGV[1] sample id   ARGV[2] its lease   ARGV[3] revision, ARGV[4] policy version and ARGV[5] random counter decided
-- on   ARGV[6] the new counter   ARGV[7] chunks wanted   ARGV[8] most uses of a chunk, or ''   ARGV[9] oldest version
-- and ARGV[10] oldest run clock of insertion that may be sampled   ARGV[11] the only session that may   ARGV[12] chunks
-- sampled in all that the rate limiter allows, or ''   ARGV[13] JSON of the counts that the sample was drawn from
-- ARGV[14] id of the request, or ''
-- ARGV per draw from 15 on: 'order low high rank accept' (app.core.replay.sampling.ChunkDraw)
--
-- Returns {'taken', JSON of the sample}, also if it was taken before; or, with nothing changed: {'repeated'}: the
-- request already holds a sample; {'outdated'}: read and draw again; {'blocked'} by the rate limiter; {'short', draws
-- that gave a chunk}: draw more.
-- Cost: O(d log m), d the draws, m the chunks held.
--
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
-- include replay_holds
-- include draw_chunks
-- include count_staleness
local known = redis.call('HGET', SAMPLES, ARGV[1])
if known then return {'taken', known} end
local before = redis.call('HGET', REQUESTS, ARGV[14])
if before and redis.call('HEXISTS', SAMPLE_STATES, before) == 1 then return {'repeated'} end
local now = redis.call('HMGET', REPLAY, 'revision', 'draws', 'samples', 'demand')
local version = redis.call('HGET', RUN, 'policy_version') or '0'
if now[1] ~= ARGV[3] or version ~= ARGV[4] or (now[2] or '0') ~= ARGV[5] then return {'outdated'} end
local wanted, most_uses = tonumber(ARGV[7]), tonumber(ARGV[8]) or math.huge
if ARGV[12] ~= '' and (now[3] or 0) + wanted > tonumber(ARGV[12]) then return {'blocked'} end
local found = draw_chunks(wanted, most_uses)
if #found < wanted then
  local taken = {}
  for n, drawn in ipairs(found) do taken[n] = drawn.draw end
  return {'short', taken}
end
local manifest, chunks = {}, {}
for n, drawn in ipairs(found) do
  local chunk = drawn.chunk
  manifest[n] = manifest_entry(chunk, chunk.uses, string.format('%.0f', chunk.weight), drawn.draw)
  chunks[n] = chunk
  hold(chunk, most_uses)
end
local sample = note_sample(ARGV[1], ARGV[2], manifest, ARGV[13])
if ARGV[14] ~= '' then redis.call('HSET', REQUESTS, ARGV[14], ARGV[1]) end
redis.call('HSET', REPLAY, 'draws', ARGV[6])
if now[4] and wanted >= tonumber(string.match(now[4], '^%d+')) then redis.call('HDEL', REPLAY, 'demand') end
count_staleness(chunks, version)
write_changes()
redis.call('PUBLISH', RUN, 'sampled')
return {'taken', sample}
