#!lua flags=allow-oom
-- count_curriculum: count the items that a strategy needs, and claim random numbers for a sample.
--
-- Returns {'gone'} if there is no such curriculum, or {'counted', totals, items in each order of RANKED, items in each
-- range, arm and value of each arm in one list, name and number of each category in one list, sizes}. totals: {random
-- counter and samples before this call, observations, sum of mean reward in units of 1/65536, observations left out,
-- items in flight}. sizes: items without a category, then items of each category. A repeated call skips random numbers
-- and counts its sample again, which only statistics show.
-- Cost: O((r + k) log m), r the ranges, k the categories if wanted, m the items there are.
--
-- include curriculum_keys
-- include curriculum_places
-- include rows
local draws = ARGV[1]  -- how far to advance the random counter
local new_samples = ARGV[2]  -- 1 to count a sample, else 0; if `draws` is 0, too, nothing changes
local by_category = ARGV[3]  -- 1 if the items of each category are wanted, else 0
local clock_ms = ARGV[4]  -- the run clock
local spans = rows(ARGV, 5, {'order', 'low', 'high'})  -- ranges of scores, without the high end

if redis.call('EXISTS', c.curriculum) == 0 then return {'gone'} end
local counter, samples, updates, mean_reward, left_out = unpack(
  redis.call('HMGET', c.curriculum, 'counter', 'samples', 'updates', 'mean_reward', 'left_out'))
if draws ~= '0' then redis.call('HINCRBY', c.curriculum, 'counter', draws) end
if new_samples ~= '0' then redis.call('HINCRBY', c.curriculum, 'samples', 1) end
local lengths, ranges, numbers, sizes = {}, {}, redis.call('HGETALL', c.category_numbers), {}
for n, order in ipairs(RANKED) do lengths[n] = redis.call('ZCARD', c[order]) end
for n, span in ipairs(spans) do ranges[n] = redis.call('ZCOUNT', c[span.order], span.low, '(' .. span.high) end
if by_category == '1' then
  sizes[1] = redis.call('ZCOUNT', c.category, 0, 0)
  for n = 2, #numbers, 2 do sizes[#sizes + 1] = redis.call('ZCOUNT', c.category, numbers[n], numbers[n]) end
end
local in_flight = redis.call('ZCOUNT', c.in_flight, '(' .. clock_ms, '+inf')
local so_far = {counter or '0', samples or '0', updates or '0', mean_reward or '0', left_out or '0', in_flight}
return {'counted', so_far, lengths, ranges, redis.call('HGETALL', c.arms), numbers, sizes}
