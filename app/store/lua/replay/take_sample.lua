#!lua flags=allow-oom
-- take_sample: give chunks to a new sample in the order of its draws, each once, and reserve a use of each.
--
-- Returns {'taken', JSON of the sample}, also if an earlier call took it; or, with nothing changed: {'repeated'}: the
-- request already holds a sample; {'outdated'}: read and draw again; {'blocked'} by the rate limiter; {'short', numbers
-- from 1 of the draws that gave a chunk}: draw more.
-- Cost: O(d log m), d the draws, m the chunks held.
--
-- include clock
-- include rows
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
-- include replay_holds
local sample_id = ARGV[1]
local lease = ARGV[2]  -- JSON
local revision = ARGV[3]  -- that the decision is based on
local policy_version = ARGV[4]  -- that the decision is based on
local random_counter = ARGV[5]  -- that the draws are based on
local new_counter = ARGV[6]  -- random counter after the draws
local wanted = ARGV[7]  -- how many chunks
local max_reuse = ARGV[8]  -- most uses of a chunk, or ''
local oldest_version = ARGV[9]  -- oldest version that may be sampled
local oldest_ms = ARGV[10]  -- oldest run clock of insertion that may be sampled
local session = ARGV[11]  -- only chunks of this session may be sampled
local most_samples = ARGV[12]  -- total of sampled chunks that the rate limiter allows, or ''
local drawn_on = ARGV[13]  -- JSON of the strategy, and of the totals of the chunks it draws from
local request_id = ARGV[14]  -- or ''
local draws = columns(ARGV, 15, {'ranked_by', 'low', 'high', 'rank', 'accept'}, (#ARGV - 14) / 5)
-- include draw_chunks
-- include count_staleness

local known = redis.call('HGET', SAMPLES, sample_id)
if known then return {'taken', known} end
local before = redis.call('HGET', REQUESTS, request_id)
if before and redis.call('HEXISTS', SAMPLE_STATES, before) == 1 then return {'repeated'} end
local now = redis.call('HMGET', REPLAY, 'revision', 'draws', 'samples', 'demand')
local version = redis.call('HGET', RUN, 'policy_version') or '0'
if now[1] ~= revision or version ~= policy_version or (now[2] or '0') ~= random_counter then return {'outdated'} end
local most, most_uses = tonumber(wanted), tonumber(max_reuse) or math.huge
if most_samples ~= '' and (now[3] or 0) + most > tonumber(most_samples) then return {'blocked'} end
local found = draw_chunks(most, most_uses)
if #found < most then
  local taken = {}
  for n, drawn in ipairs(found) do taken[n] = drawn.number end
  return {'short', taken}
end
advance_clock(RUN)
local manifest, chunks = {}, {}
for n, drawn in ipairs(found) do
  local chunk = drawn.chunk
  manifest[n] = manifest_entry(chunk, chunk.uses, string.format('%.0f', chunk.weight), draw_text(drawn.number))
  chunks[n] = chunk
  hold(chunk, most_uses)
end
local sample = note_sample(sample_id, lease, manifest, drawn_on)
if request_id ~= '' then redis.call('HSET', REQUESTS, request_id, sample_id) end
redis.call('HSET', REPLAY, 'draws', new_counter)
if now[4] and most >= tonumber(string.match(now[4], '^%d+')) then redis.call('HDEL', REPLAY, 'demand') end
count_staleness(chunks, version)
write_changes()
redis.call('PUBLISH', RUN, 'sampled')
return {'taken', sample}
