#!lua
-- put_annotations: store values per token of a group that the run holds or remembers, all or none.
--
-- Annotations of the same names are replaced. Annotations of a former group with this name are forgotten.
--
-- Returns 'stored'; or, with nothing changed, 'unknown' if the run has forgotten the group, 'names' if it would have
-- too many annotations, or 'bytes' if the annotations of the run would take too many bytes.
-- Cost: O(n), n the annotations of the group.
--
-- include rows
local RUN = KEYS[1]  -- hash: bytes of all annotations
local KNOWN = KEYS[2]  -- hash: name of a group -> its id, and how it ended
local ANNOTATIONS = KEYS[3]  -- hash: name of a group -> its id and names; name of a group and annotation -> values
local group_name = ARGV[1]
local group_id = ARGV[2]
local most_names = ARGV[3]  -- of a group
local most_bytes = ARGV[4]  -- of the run
local added = rows(ARGV, 5, {'name', 'values'})
-- include group_annotations

local known = redis.call('HGET', KNOWN, group_name)
if not known or string.match(known, '^%S+') ~= group_id then return 'unknown' end
local id, there = annotations_of(ANNOTATIONS, group_name)
local names, is_there, freed, bytes = {}, {}, 0, 0
if id and id ~= group_id then freed, there = bytes_of(ANNOTATIONS, group_name, there), {} end
for _, name in ipairs(there) do names[#names + 1], is_there[name] = name, true end
for _, one in ipairs(added) do
  bytes = bytes + #one.values
  if is_there[one.name] then
    freed = freed + bytes_of(ANNOTATIONS, group_name, {one.name})
  else
    names[#names + 1] = one.name
  end
end
if #names > tonumber(most_names) then return 'names' end
if redis.call('HINCRBY', RUN, 'annotation_bytes', 0) + bytes - freed > tonumber(most_bytes) then return 'bytes' end
if id and id ~= group_id then drop_annotations(ANNOTATIONS, group_name) end
for _, one in ipairs(added) do redis.call('HSET', ANNOTATIONS, group_name .. ' ' .. one.name, one.values) end
redis.call('HSET', ANNOTATIONS, group_name, group_id .. ' ' .. table.concat(names, ' '))
redis.call('HINCRBY', RUN, 'annotation_bytes', bytes - freed)
return 'stored'
