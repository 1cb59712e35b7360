#!lua
-- begin_loading: make a curriculum that has no name yet, to put saved items into.
--
-- KEYS[1] run  hash, and KEYS[2..19], the curriculum's: curriculum_keys names them
-- KEYS[20] curricula_loading  zset  ids of curricula that are being loaded, by the run clock at their last progress
-- ARGV[1] its id   ARGV[2] how many names of categories there are   ARGV from 3 on: those names; then fields of the
-- curriculum and their values in turns
--
-- Returns 1, or 0 if there is no such run; then nothing has changed.
-- Cost: O(n), n the arguments.
--
-- include clock
-- include bulk
-- include curriculum_keys
local c = curriculum_at(2)
if redis.call('HEXISTS', KEYS[1], 'config') == 0 then return 0 end
redis.call('ZADD', KEYS[20], advance_clock(KEYS[1]), ARGV[1])
for i = 1, tonumber(ARGV[2]) do later('HSET', c.category_numbers, ARGV[2 + i], i) end
for i = 3 + ARGV[2], #ARGV, 2 do
  local arm = string.match(ARGV[i], '^arm (.*)$')
  later('HSET', arm and c.arms or c.curriculum, arm or ARGV[i], ARGV[i + 1])
end
flush()
return 1
