#!lua
-- insert_fragments: index fragments of one worker whose payloads are written, form chunks, make room, all or none.
--
-- KEYS[1] run  hash, and KEYS[2..23], the replay buffer's: replay_keys names them   KEYS[24..] payloads, string
-- ARGV[1] worker   ARGV[2] its state as it was read, or ''   ARGV[3] its new state, never used before, or ''
-- ARGV[4] run clock at which to look after it, or ''   ARGV[5] revision and ARGV[6] policy version decided on
-- ARGV[7] chunks inserted in all that the rate limiter allows, or ''   ARGV[8], ARGV[9] most chunks and bytes, or ''
-- ARGV[10] score to assume for a payload that is not reserved: 0 if it was written in the same transaction, -1 if it
-- should be   ARGV[11] JSON: {fragments: [[id, bytes, rest of the entry]], chunks: [insert_chunks has them],
-- victims: [ids of chunks to evict until there is room], freed: [ids of fragments that waited and are dropped],
-- counts: {total: increase}}
--
-- Returns {'inserted'}, also if it was done before; or, with nothing stored: {'outdated'}: look and decide again;
-- {'blocked'} by the rate limiter; {'crowded'}: there are not enough victims any more.
-- Cost: O(n log m), n the fragments, chunks and victims, m the chunks held.
--
-- include clock
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
-- include replay_retire
-- include insert_chunks
local plan = cjson.decode(ARGV[11])
-- Mark payloads that are not needed. Payloads that an earlier call of this command indexed stay.
local function answer(word)
  if #plan.fragments > 0 then advance_clock(RUN) end  -- the run may have been removed: it is looked after again
  for _, fragment in ipairs(plan.fragments) do
    if redis.call('HEXISTS', FRAGMENTS, fragment[1]) == 1 then
      redis.call('ZREM', UNREFERENCED, fragment[1])
    else
      redis.call('ZADD', UNREFERENCED, -1, fragment[1])
    end
  end
  return {word}
end
local function note_worker()
  if ARGV[3] == '' then redis.call('HDEL', WORKERS, ARGV[1]) else redis.call('HSET', WORKERS, ARGV[1], ARGV[3]) end
  if ARGV[4] == '' then redis.call('ZREM', DUE, ARGV[1]) else redis.call('ZADD', DUE, ARGV[4], ARGV[1]) end
end

local state = redis.call('HGET', WORKERS, ARGV[1]) or ''
if state == ARGV[3] then return answer('inserted') end
local now = redis.call('HMGET', REPLAY, 'revision', 'inserts', 'chunks', 'chunk_bytes')
if state ~= ARGV[2] or now[1] ~= ARGV[5] then return answer('outdated') end
if (redis.call('HGET', RUN, 'policy_version') or '0') ~= ARGV[6] then return answer('outdated') end
for n, fragment in ipairs(plan.fragments) do
  local reserved = tonumber(redis.call('ZSCORE', UNREFERENCED, fragment[1]) or ARGV[10])
  local there = redis.call('STRLEN', KEYS[23 + n]) == tonumber(fragment[2])
  if reserved < 0 or not there then return answer('outdated') end
end
if ARGV[7] ~= '' and (now[2] or 0) + #plan.chunks > tonumber(ARGV[7]) then return answer('blocked') end
local victims = victims_for(plan,
  {tonumber(now[3] or 0), tonumber(ARGV[8])}, {tonumber(now[4] or 0), tonumber(ARGV[9])})
if not victims then return answer('crowded') end
make_room(victims)
note_worker()
insert_plan(plan, advance_clock(RUN))
return answer('inserted')
