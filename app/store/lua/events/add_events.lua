#!lua flags=allow-oom
-- add_events: add the events of a process to those of a run. A repeated command adds nothing.
--
-- Returns the id of the newest added event, or '' if there is no such run; then nothing is added.
-- Cost: O(n + m), n the events added, m those that other processes added after `since`.
--
-- include rows
local RUN = KEYS[1]  -- hash: exists while the run does
local EVENTS = KEYS[2]  -- stream: JSON of each event, its age in ms when it was added, and who added it
local most = ARGV[1]  -- about how many events to keep
local since = ARGV[2]  -- id of the newest event when this process last added some, or '-'
local flush = ARGV[3]  -- unique name of these events
local new = rows(ARGV, 4, {'age_ms', 'event'})  -- how long ago the event happened; JSON

-- Return a field of an entry; nil if it has none: tick adds entries without `flush`.
local function field_of(words, name)
  for i = 1, #words, 2 do
    if words[i] == name then return words[i + 1] end
  end
end

if redis.call('EXISTS', RUN) == 0 then return '' end
local oldest = since == '-' and since or '(' .. since
for _, entry in ipairs(redis.call('XREVRANGE', EVENTS, '+', oldest)) do
  local id, words = unpack(entry)
  if field_of(words, 'flush') == flush then return id end
end
local newest
for _, one in ipairs(new) do
  local entry = {'event', one.event, 'age_ms', one.age_ms, 'flush', flush}
  newest = redis.call('XADD', EVENTS, 'MAXLEN', '~', most, '*', unpack(entry))
end
return newest
