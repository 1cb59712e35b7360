#!lua flags=allow-oom
-- end_sample: end a sample if it is still in the state that was read; its uses count, or are given back.
--
-- KEYS[1] run  hash, and KEYS[2..23], the replay buffer's: replay_keys names them
-- ARGV[1] sample id   ARGV[2] lease seen   ARGV[3] 'acknowledged', 'given_back' or 'expired'   ARGV[4] most uses of a
-- chunk, or ''   ARGV[5] lease id   ARGV[6] ms it is known how it ended   ARGV[7] revision decided on
--
-- Returns 1, or 0 if it is in another state by now, or the configuration changed; then nothing has changed.
-- Cost: O(n log m), n the chunks of the sample, m the chunks held.
--
-- include clock
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
-- include replay_retire
-- include replay_ends
if redis.call('HGET', SAMPLE_STATES, ARGV[1]) ~= ARGV[2] then return 0 end
if redis.call('HGET', REPLAY, 'revision') ~= ARGV[7] then return 0 end
let_go_all(cjson.decode(redis.call('HGET', SAMPLES, ARGV[1])).chunks, ARGV[3], tonumber(ARGV[4]) or math.huge)
redis.call('HDEL', REQUESTS, cjson.decode(ARGV[2]).request_id)
redis.call('HDEL', SAMPLES, ARGV[1])
redis.call('HDEL', SAMPLE_STATES, ARGV[1])
note_end(ARGV[1], ARGV[3], ARGV[5], ARGV[6])
redis.call('PUBLISH', RUN, 'sample ended')
return 1
