#!lua flags=allow-oom
-- count_curriculum: count the items that a strategy needs, and claim random numbers for a sample.
--
-- KEYS[1] run  hash, and KEYS[2..19], the curriculum's: curriculum_keys names them
-- ARGV[1] how far to advance the random counter   ARGV[2] 1 to count a sample, or 0; if both are 0, nothing is changed
-- ARGV[3] 1 if the items of each category are wanted, else 0   ARGV[4] the run clock, ms
-- ARGV per range of scores from 5 on: its order, its least score, the end, not included
--
-- Returns {'counted', {the random counter, samples and observations so far, sum of mean reward in parts of 65536,
-- observations left out, items in flight}, items in each of the orders mean_reward, posterior, signal, last, drawn,
-- unseen and prior_only, items in each range, arms and their values in turns, categories and their numbers in turns,
-- items without a category and of each}; or {'gone'}: there is no such curriculum. A repetition skips numbers.
-- Cost: O((r + k) log m), r the ranges, k the categories if wanted, m the items there are.
--
-- include curriculum_keys
-- include curriculum_places
local c = curriculum_at(2)
if redis.call('EXISTS', c.curriculum) == 0 then return {'gone'} end
local so_far = redis.call('HMGET', c.curriculum, 'counter', 'samples', 'updates', 'mean_reward', 'left_out')
if ARGV[1] ~= '0' then redis.call('HINCRBY', c.curriculum, 'counter', ARGV[1]) end
if ARGV[2] ~= '0' then redis.call('HINCRBY', c.curriculum, 'samples', 1) end
local lengths, ranges, numbers, sizes = {}, {}, redis.call('HGETALL', c.category_numbers), {}
for n, order in ipairs(RANKED) do lengths[n] = redis.call('ZCARD', c[order]) end
for i = 5, #ARGV, 3 do
  ranges[#ranges + 1] = redis.call('ZCOUNT', c[ARGV[i]], ARGV[i + 1], '(' .. ARGV[i + 2])
end
if ARGV[3] == '1' then
  sizes[1] = redis.call('ZCOUNT', c.category, 0, 0)
  for n = 2, #numbers, 2 do sizes[#sizes + 1] = redis.call('ZCOUNT', c.category, numbers[n], numbers[n]) end
end
for n = 1, 5 do so_far[n] = so_far[n] or '0' end
so_far[6] = redis.call('ZCOUNT', c.in_flight, '(' .. ARGV[4], '+inf')
return {'counted', so_far, lengths, ranges, redis.call('HGETALL', c.arms), numbers, sizes}
