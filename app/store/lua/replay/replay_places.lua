-- replay_places: the buffer and its snapshots, as places of equal keys (not a command of its own).
--
-- A place is 19 keys in a row, of which the 13th is that of the fragments: those that replay_keys names from 2 to 20,
-- or their like at a snapshot. Its orders, the third to the 11th, follow from its chunks: they would be most of the
-- cost of a copy, and are made again by prepare_snapshot.
local TRASH, PARTS = KEYS[24], 19

local function is_order(i) return i >= 2 and i <= 10 end

local function copy_place(from, to)
  for i = 0, PARTS - 1 do
    if not is_order(i) then redis.call('COPY', KEYS[from + i], KEYS[to + i]) end
  end
end

local function move_orders(from, to)
  for i = 0, PARTS - 1 do
    if is_order(i) and redis.call('EXISTS', KEYS[from + i]) == 1 then
      redis.call('RENAME', KEYS[from + i], KEYS[to + i])
    end
  end
end

-- Which of its payloads nothing else names is for those to find out who delete marked payloads.
local function empty_place(first, marked_hash, token)
  if redis.call('EXISTS', KEYS[first + 12]) == 1 then
    redis.call('RENAME', KEYS[first + 12], KEYS[marked_hash])
    redis.call('SADD', TRASH, token)
  end
  redis.call('UNLINK', unpack(KEYS, first, first + PARTS - 1))
end
