-- ledger: count the tokens of groups by state and environment (not a command of its own).
--
-- Waiting tokens are not counted: they are the generated tokens minus those of all other states. So a group that moves
-- between lanes and buffers changes no count.
--
-- Add the tokens of groups to states, or subtract them: state -> 1 or -1. States are 'generated', 'leased', 'trained',
-- or why groups were dropped. Groups have `tokens` and `environment`, which may be '-' or null.
local function count_tokens(groups, changes)
  local sums = {}
  for _, group in ipairs(groups) do
    local environment = group.environment
    if environment == cjson.null then environment = '-' end
    if type(environment) == 'number' then environment = string.format('%.0f', environment) end
    sums[environment] = (sums[environment] or 0) + group.tokens
  end
  for environment, tokens in pairs(sums) do
    for state, sign in pairs(changes) do
      -- Redis 7.0 refuses -0
      if tokens > 0 then redis.call('HINCRBY', LEDGER, state .. ':' .. environment, sign * tokens) end
    end
  end
end
