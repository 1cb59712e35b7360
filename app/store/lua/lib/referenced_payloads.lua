-- referenced_payloads: tell whether anything names a payload (not a command of its own).
--
-- KEYS[2] run       hash  newest group, which is kept for /latest_example until a newer one comes
-- KEYS[3..] hash: each that names payloads; what several need is stored once, and goes with the last of them
local latest, hashes = redis.call('HGET', KEYS[2], 'latest'), {}
for i = 3, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then hashes[#hashes + 1] = KEYS[i] end
end

local function is_named(id)
  if id == latest then return true end
  for _, hash in ipairs(hashes) do
    if redis.call('HEXISTS', hash, id) == 1 then return true end
  end
  return false
end
