#!lua flags=allow-oom
-- end_sample: end a sample in the state it was seen in: its uses count, or are given back.
--
-- KEYS[1] run  hash, and KEYS[2..18], the replay buffer's: replay_keys names them
-- ARGV[1] sample id   ARGV[2] lease seen   ARGV[3] 'acknowledged', 'given_back' or 'expired'   ARGV[4] most uses of a
-- chunk, or ''   ARGV[5] lease id   ARGV[6] ms it is known how it ended
--
-- Returns 1, or 0 if it is in another state by now; then nothing has changed.
-- Cost: O(n log m), n the chunks of the sample, m the chunks held.
--
-- include clock
-- include replay_keys
-- include replay_chunks
-- include replay_retire
if redis.call('HGET', SAMPLE_STATES, ARGV[1]) ~= ARGV[2] then return 0 end
local used = ARGV[3] == 'acknowledged' and 1 or 0
local most_uses = tonumber(ARGV[4]) or math.huge

local function let_go(chunk)
  chunk.uses, chunk.held = chunk.uses + used, chunk.held - 1
  local retired = chunk.place ~= 'sampleable' and chunk.place ~= 'withheld' and chunk.place ~= 'past'
  if retired then
    count('retired_uses', used)
    if chunk.held > 0 then write(chunk) else forget_chunk(chunk) end
  elseif chunk.uses >= most_uses then
    retire(chunk, 'used_up')
  else
    if chunk.place == 'sampleable' and used > 0 then redis.call('ZADD', USES, -chunk.uses, chunk.id) end
    if chunk.place == 'withheld' and chunk.uses + chunk.held < most_uses then
      take_out(chunk)
      put(chunk, 'sampleable')
    end
    write(chunk)
  end
end

local chunks = cjson.decode(redis.call('HGET', SAMPLES, ARGV[1])).chunks
for _, entry in ipairs(chunks) do let_go(chunk_of(entry[1])) end
if used == 0 then count('samples', -#chunks) end
count(ARGV[3] .. '_samples', 1)
redis.call('HDEL', SAMPLES, ARGV[1])
redis.call('HDEL', SAMPLE_STATES, ARGV[1])
local clock, name = advance_clock(RUN), 'sample:' .. ARGV[1]
redis.call('HSET', HISTORY, name, string.format('%s %s 0 %.0f', ARGV[3], ARGV[5], clock))
redis.call('ZADD', ENDED, string.format('%.0f', clock + ARGV[6]), name)
redis.call('PUBLISH', RUN, 'sample ended')
return 1
