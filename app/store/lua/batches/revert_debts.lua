-- revert_debts: undo the debt changes of a batch that was not trained on (not a command of its own).
--
-- `changes` is a list of pairs: environment id, and the change of its debt.
local function revert_debts(run, changes)
  local debts = cjson.decode(redis.call('HGET', run, 'debts') or '{}')
  for _, pair in ipairs(changes) do
    local id, change = unpack(pair)
    local environment = string.format('%.0f', id)
    local left = (debts[environment] or 0) - change
    debts[environment] = left ~= 0 and left or nil
  end
  redis.call('HSET', run, 'debts', cjson.encode(debts))
end
