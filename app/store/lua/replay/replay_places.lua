-- replay_places: copy, move and empty the buffer and its snapshots, which have equal keys (not a command of its own).
--
local PLACE = {'replay', 'chunks', 'order', 'weights', 'versions', 'uses', 'reserved', 'reserved_order',
  'reserved_weights', 'reserved_uses', 'archived', 'version_counts', 'fragments', 'workers', 'due', 'samples',
  'sample_states', 'requests', 'entering', 'marked_hash'}
-- The orders follow from the chunks of a place. To copy them would be most of the cost of a snapshot, so
-- prepare_snapshot makes them again.
local ORDERS = {order = true, weights = true, versions = true, uses = true, reserved = true, reserved_order = true,
  reserved_weights = true, reserved_uses = true, archived = true}

local function copy_place(from, to)
  for _, part in ipairs(PLACE) do
    if not ORDERS[part] and part ~= 'marked_hash' then redis.call('COPY', from[part], to[part]) end
  end
end

local function move_orders(from, to)
  for order in pairs(ORDERS) do
    if redis.call('EXISTS', from[order]) == 1 then redis.call('RENAME', from[order], to[order]) end
  end
end

-- Delete a place, and mark its hash of fragments. The garbage collection deletes payloads that nothing else names.
local function empty_place(place, token, marked_hashes)
  if redis.call('EXISTS', place.fragments) == 1 then
    redis.call('RENAME', place.fragments, place.marked_hash)
    redis.call('SADD', marked_hashes, token)
  end
  for _, part in ipairs(PLACE) do
    if part ~= 'marked_hash' then redis.call('UNLINK', place[part]) end
  end
end
