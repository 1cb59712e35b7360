#!lua flags=allow-oom
-- change_alerts: add an event for each new alert of a run, and for each alert that has ended.
--
-- Returns nothing. If there is no such run, nothing is added.
-- Cost: O(n), n the alerts.
--
local RUN = KEYS[1]  -- hash: the kinds of the current alerts
local EVENTS = KEYS[2]  -- stream: events
local most = ARGV[1]  -- about how many events to keep
local alerts = cjson.decode(ARGV[2])  -- JSON list of {alert, detail}: its kind, and a sentence

local function add(event) redis.call('XADD', EVENTS, 'MAXLEN', '~', most, '*', 'event', cjson.encode(event)) end

if redis.call('EXISTS', RUN) == 0 then return end
local before, now = cjson.decode(redis.call('HGET', RUN, 'alerts') or '{}'), {}
for _, one in ipairs(alerts) do
  now[one.alert] = true
  if not before[one.alert] then add({kind = 'alert raised', alert = one.alert, detail = one.detail}) end
end
for alert in pairs(before) do
  if not now[alert] then add({kind = 'alert cleared', alert = alert}) end
end
if next(now) then redis.call('HSET', RUN, 'alerts', cjson.encode(now)) else redis.call('HDEL', RUN, 'alerts') end
