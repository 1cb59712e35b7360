-- referenced_payloads: tell which payloads anything names (not a command of its own).
--
-- A payload that several hashes name is stored once. It is deleted with the last of them. The newest group stays for
-- /latest_example until a newer one comes.
local latest, hashes = redis.call('HGET', RUN, 'latest'), {}
for _, key in ipairs(NAMING) do
  if redis.call('EXISTS', key) == 1 then hashes[#hashes + 1] = key end
end

-- Return a table of those of some payloads that something names.
local function named_of(ids)
  local named = {}
  if latest then named[latest] = true end
  for _, hash in ipairs(hashes) do
    for i, entry in ipairs(read('HMGET', hash, ids)) do named[ids[i]] = named[ids[i]] or entry and true end
  end
  return named
end
