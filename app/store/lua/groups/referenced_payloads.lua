-- referenced_payloads: tell whether anything names a payload (not a command of its own).
--
-- A payload that several hashes name is stored once. It is deleted with the last of them. The newest group stays for
-- /latest_example until a newer one comes.
local latest, hashes = redis.call('HGET', RUN, 'latest'), {}
for _, key in ipairs(NAMING) do
  if redis.call('EXISTS', key) == 1 then hashes[#hashes + 1] = key end
end

local function is_named(id)
  if id == latest then return true end
  for _, hash in ipairs(hashes) do
    if redis.call('HEXISTS', hash, id) == 1 then return true end
  end
  return false
end
