-- referenced_payloads: find out which payloads are still named (not a command of its own).
--
-- A payload that several hashes name is stored once, and stays until none of them names it. The newest group stays for
-- /latest_example until a newer one comes.
local latest, hashes = redis.call('HGET', RUN, 'latest'), {}
for _, key in ipairs(NAMING) do
  if redis.call('EXISTS', key) == 1 then hashes[#hashes + 1] = key end
end

-- Return a table id -> true of the payloads that something names.
local function named_of(ids)
  local named = {}
  if latest then named[latest] = true end
  for _, hash in ipairs(hashes) do
    for i, entry in ipairs(read('HMGET', hash, ids)) do named[ids[i]] = named[ids[i]] or entry and true end
  end
  return named
end
