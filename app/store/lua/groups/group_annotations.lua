-- group_annotations: values per token that trainers added to groups (not a command of its own).
--
-- The hash has two kinds of fields. 'GROUP_NAME' -> the id of the group, and the names of its annotations.
-- 'GROUP_NAME ANNOTATION' -> the values.
--
-- Return the id of the group that has annotations under this name, or nil, and the names of its annotations.
local function annotations_of(annotations, name)
  local names = {}
  for word in string.gmatch(redis.call('HGET', annotations, name) or '', '%S+') do names[#names + 1] = word end
  return table.remove(names, 1), names
end

-- Return the bytes of some annotations of a group.
local function bytes_of(annotations, name, names)
  local bytes = 0
  for _, own in ipairs(names) do bytes = bytes + redis.call('HSTRLEN', annotations, name .. ' ' .. own) end
  return bytes
end

-- Forget all annotations of a group, and return the bytes that this frees.
local function drop_annotations(annotations, name)
  local id, names = annotations_of(annotations, name)
  if not id then return 0 end
  local bytes = bytes_of(annotations, name, names)
  redis.call('HDEL', annotations, name)
  for _, own in ipairs(names) do redis.call('HDEL', annotations, name .. ' ' .. own) end
  return bytes
end

-- Forget the annotations of groups that the run forgets.
local function forget_annotations(run, annotations, group_names)
  if redis.call('EXISTS', annotations) == 0 then return end
  local bytes = 0
  for _, name in ipairs(group_names) do bytes = bytes + drop_annotations(annotations, name) end
  if bytes > 0 then redis.call('HINCRBY', run, 'annotation_bytes', -bytes) end  -- Redis 7.0 refuses -0
end
