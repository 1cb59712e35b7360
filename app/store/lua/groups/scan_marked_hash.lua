#!lua flags=allow-oom
-- scan_marked_hash: look a part of what was thrown away at once over.
--
-- KEYS[1] marked_hash  hash  payload id -> what was known of it
-- KEYS[2] run      hash, and KEYS[3..] hash: each that names payloads (referenced_payloads)
-- ARGV[1] cursor: 0, then what the call before returned   ARGV[2] about how many at once
--
-- Returns the next cursor, 0 after the last part, then the ids of those payloads that nothing names.
-- Cost: O(n), n those looked at.
--
-- include referenced_payloads
local part = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local found = {part[1]}
for i = 1, #part[2], 2 do
  if not is_named(part[2][i]) then found[#found + 1] = part[2][i] end
end
return found
