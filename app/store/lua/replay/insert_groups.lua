#!lua flags=allow-oom
-- insert_groups: make chunks of groups that entered the replay buffer, and room for them, all or none.
--
-- KEYS[1] run  hash, and KEYS[2..23], the replay buffer's: replay_keys names them
-- ARGV[1] revision and ARGV[2] policy version decided on   ARGV[3], ARGV[4] most chunks and bytes, or ''
-- ARGV[5] JSON: {fragments, chunks, victims, freed, counts}, as insert_fragments has them   ARGV[6..] ids of the groups
--
-- Returns 'taken'; or, with nothing changed: 'outdated': look and decide again; 'crowded': there are not enough victims
-- any more.
-- Cost: O(n log m), n the groups and victims, m the chunks held.
--
-- include clock
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
-- include replay_retire
-- include insert_chunks
local now = redis.call('HMGET', REPLAY, 'revision', 'chunks', 'chunk_bytes')
local version = redis.call('HGET', RUN, 'policy_version') or '0'
if now[1] ~= ARGV[1] or version ~= ARGV[2] then return 'outdated' end
for i = 6, #ARGV do
  if not redis.call('ZSCORE', ENTERING, ARGV[i]) then return 'outdated' end
end
local plan = cjson.decode(ARGV[5])
local victims = victims_for(plan,
  {tonumber(now[2] or 0), tonumber(ARGV[3])}, {tonumber(now[3] or 0), tonumber(ARGV[4])})
if not victims then return 'crowded' end
make_room(victims)
for i = 6, #ARGV do redis.call('ZREM', ENTERING, ARGV[i]) end
insert_plan(plan, advance_clock(RUN))
return 'taken'
