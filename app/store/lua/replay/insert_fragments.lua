#!lua
-- insert_fragments: index fragments of one worker whose payloads are written, form chunks, make room, all or none.
--
-- Returns {'inserted'}, also if it was done before; or, with nothing stored: {'outdated'}: read and decide again;
-- {'blocked'} by the rate limiter; {'crowded'}: the victims are not enough; {'full'}: the worker is new, and the buffer
-- has as many as it may have.
-- Cost: O(n log m), n the fragments, chunks and victims, m the chunks held.
--
-- include rows
-- include clock
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
-- include replay_retire
-- include insert_chunks
local worker = ARGV[1]
local seen = ARGV[2]  -- its state as it was read, or ''
local new = ARGV[3]  -- its new state, unique, or '' for none
local due_ms = ARGV[4]  -- run clock at which to check the worker, or ''
local revision = ARGV[5]  -- that the decision is based on
local policy_version = ARGV[6]  -- that the decision is based on
local most_inserts = ARGV[7]  -- total of inserted chunks that the rate limiter allows, or ''
local max_chunks = ARGV[8]
local max_bytes = ARGV[9]  -- or ''
local most_workers = ARGV[10]
-- score to assume for a payload that is not in UNREFERENCED: 0 if this transaction wrote it, else -1
local score_if_absent = ARGV[11]
local plan = cjson.decode(ARGV[12])  -- JSON: as insert_chunks describes it
local payloads = rest(KEYS, 24)  -- string: of each fragment

-- Mark payloads that are not indexed. Payloads that an earlier call of this command indexed stay.
local function answer(word)
  if #plan.fragments > 0 then advance_clock(RUN) end  -- a deleted run exists again, and is maintained
  for _, fragment in ipairs(plan.fragments) do
    if redis.call('HEXISTS', FRAGMENTS, fragment.id) == 1 then
      redis.call('ZREM', UNREFERENCED, fragment.id)
    else
      redis.call('ZADD', UNREFERENCED, -1, fragment.id)
    end
  end
  return {word}
end
local function note_worker()
  if new == '' then redis.call('HDEL', WORKERS, worker) else redis.call('HSET', WORKERS, worker, new) end
  if due_ms == '' then redis.call('ZREM', DUE, worker) else redis.call('ZADD', DUE, due_ms, worker) end
end

local state = redis.call('HGET', WORKERS, worker) or ''
if state == new then return answer('inserted') end
local now = redis.call('HMGET', REPLAY, 'revision', 'inserts', 'chunks', 'chunk_bytes')
if state ~= seen or now[1] ~= revision then return answer('outdated') end
if (redis.call('HGET', RUN, 'policy_version') or '0') ~= policy_version then return answer('outdated') end
if seen == '' and redis.call('HLEN', WORKERS) >= tonumber(most_workers) then return answer('full') end
for n, fragment in ipairs(plan.fragments) do
  local score = tonumber(redis.call('ZSCORE', UNREFERENCED, fragment.id) or score_if_absent)
  local there = redis.call('STRLEN', payloads[n]) == tonumber(fragment.bytes)
  if score < 0 or not there then return answer('outdated') end
end
if most_inserts ~= '' and (now[2] or 0) + #plan.chunks > tonumber(most_inserts) then return answer('blocked') end
local victims = victims_for(plan,
  {tonumber(now[3] or 0), tonumber(max_chunks)}, {tonumber(now[4] or 0), tonumber(max_bytes)})
if not victims then return answer('crowded') end
make_room(victims)
note_worker()
insert_plan(plan, advance_clock(RUN))
return answer('inserted')
