-- take_back_debts: a batch ends that was not trained on; what it changed of the debts is undone (not a command of its own).
--
-- `changes` is a JSON list of pairs: environment id, and by how much the batch changed what it is owed.
local function take_back_debts(run, changes)
  local debts = cjson.decode(redis.call('HGET', run, 'debts') or '{}')
  for _, pair in ipairs(cjson.decode(changes)) do
    local environment = string.format('%.0f', pair[1])
    local left = (debts[environment] or 0) - pair[2]
    debts[environment] = left ~= 0 and left or nil
  end
  redis.call('HSET', run, 'debts', cjson.encode(debts))
end
