#!lua flags=allow-oom
-- end_sample: end a sample if it is still in the state that was read, and count its uses or give them back.
--
-- Returns 1, or 0 if the sample is in another state, or the buffer has another revision; then nothing has changed.
-- Cost: O(n log m), n the chunks of the sample, m the chunks held.
--
-- include clock
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
-- include replay_retire
-- include replay_ends
local sample_id = ARGV[1]
local seen = ARGV[2]  -- JSON of the lease as it was read
local outcome = ARGV[3]  -- 'acknowledged', 'given_back' or 'expired'
local max_reuse = ARGV[4]  -- most uses of a chunk, or ''
local lease_id = ARGV[5]
local memory_ms = ARGV[6]  -- how long its end is remembered, ms
local revision = ARGV[7]  -- that the decision is based on

if redis.call('HGET', SAMPLE_STATES, sample_id) ~= seen then return 0 end
if redis.call('HGET', REPLAY, 'revision') ~= revision then return 0 end
release_chunks(cjson.decode(redis.call('HGET', SAMPLES, sample_id)).chunks, outcome, tonumber(max_reuse) or math.huge)
redis.call('HDEL', REQUESTS, cjson.decode(seen).request_id)
redis.call('HDEL', SAMPLES, sample_id)
redis.call('HDEL', SAMPLE_STATES, sample_id)
note_end(sample_id, outcome, lease_id, memory_ms)
redis.call('PUBLISH', RUN, 'sample ended')
return 1
