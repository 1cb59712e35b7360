#!lua flags=allow-oom
-- insert_groups: make chunks of groups that entered the replay buffer, and room for them, all or none.
--
-- Returns 'taken'; or, with nothing changed: 'outdated': read and decide again; 'crowded': the victims are not enough.
-- Cost: O(n log m), n the groups and victims, m the chunks held.
--
-- include rows
-- include clock
-- include bulk
-- include replay_keys
-- include replay_chunks
-- include replay_moves
-- include replay_retire
-- include insert_chunks
local revision = ARGV[1]  -- that the decision is based on
local policy_version = ARGV[2]  -- that the decision is based on
local max_chunks = ARGV[3]
local max_bytes = ARGV[4]  -- or ''
local plan = cjson.decode(ARGV[5])  -- JSON: as insert_chunks describes it
local group_ids = rest(ARGV, 6)

local now = redis.call('HMGET', REPLAY, 'revision', 'chunks', 'chunk_bytes')
local version = redis.call('HGET', RUN, 'policy_version') or '0'
if now[1] ~= revision or version ~= policy_version then return 'outdated' end
for _, group in ipairs(group_ids) do
  if not redis.call('ZSCORE', ENTERING, group) then return 'outdated' end
end
local victims = victims_for(plan,
  {tonumber(now[2] or 0), tonumber(max_chunks)}, {tonumber(now[3] or 0), tonumber(max_bytes)})
if not victims then return 'crowded' end
make_room(victims)
for _, group in ipairs(group_ids) do redis.call('ZREM', ENTERING, group) end
insert_plan(plan, advance_clock(RUN))
return 'taken'
