#!lua flags=allow-oom
-- record_heartbeats: store signs of life of environments and members.
--
-- Returns 1, or 0 if there is no such run (it was forgotten, or does not exist yet); then nothing is stored.
-- Cost: O(signs of life).
--
-- include rows
local RUN = KEYS[1]  -- hash: run clock
local SEEN = KEYS[2]  -- hash: environment id -> run clock at its last sign of life, ms
local ENVIRONMENTS = KEYS[3]  -- hash: environment id -> JSON record
local MEMBERS = KEYS[4]  -- hash: 'environment:member' -> 'joined_ms running_groups permits retries'
local MEMBERS_HEARD = KEYS[5]  -- zset: members by the run clock at their last sign of life, ms
local environments_heard = cjson.decode(ARGV[1])  -- JSON object: environment id -> run clock when it was heard
local members_seen = rest(ARGV, 2)  -- 'environment:member' of each member that was heard
-- include clock

if redis.call('EXISTS', RUN) == 0 then return 0 end
local clock = advance_clock(RUN)
for id, heard_ms in pairs(environments_heard) do
  local heard = math.max(heard_ms, tonumber(redis.call('HGET', SEEN, id) or 0))
  local is_of_this_run = heard_ms <= clock  -- a later sign is of a deleted run of this name
  if is_of_this_run and redis.call('HEXISTS', ENVIRONMENTS, id) == 1 then redis.call('HSET', SEEN, id, heard) end
end
for _, name in ipairs(members_seen) do  -- a sign of life does not bring back a member that has left
  if redis.call('HEXISTS', MEMBERS, name) == 1 then
    redis.call('ZADD', MEMBERS_HEARD, clock, name)
    redis.call('HSET', SEEN, string.match(name, '^%d+'), clock)
  end
end
return 1
