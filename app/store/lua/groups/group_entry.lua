-- group_entry: the index entry of a group, a text of words with names (not a command of its own).
--
-- Words are separated by blanks; '-' stands for nothing. `app/store/groups/entries.py` reads this list, too.
local ENTRY = {
  'accepted_ms',  -- run clock at admission
  'payload_bytes',
  'checksum',  -- of the payload
  'mark',  -- 'reason:weight' of the filter that it failed, if the run keeps such groups
  'lane',
  'policy_version',
  'given_id',  -- the id that its sender gave; the words before it are remembered after the group has left
  'tokens',  -- of its sequences
  'squares',  -- sum of the squares of their tokens
  'declared_cost',  -- the cost that its sender gave
  'mean_version',  -- mean over its tokens, if the group has the version of each token
  'highest_version',
  'reward',  -- the mean of its scores
  'replay_buffer',  -- which replay buffer it has entered (enqueue_for_replay); the last word
}

local up_to = {}  -- name -> a pattern of all words before it, made when it is needed

local function words_before(name)
  if not up_to[name] then
    local words = 0
    while ENTRY[words + 1] ~= name do words = words + 1 end
    up_to[name] = string.rep('%S+ ', words)
  end
  return up_to[name]
end

local patterns = {}  -- name -> a pattern that captures the word

-- Return a pattern of the words up to `tokens`. It captures the words before `given_id` together, and four single
-- words.
local function leaving_pattern()
  local captured, words, place = {payload_bytes = true, lane = true, given_id = true, tokens = true}, {}, {}
  for n, name in ipairs(ENTRY) do words[n], place[name] = captured[name] and '(%S+)' or '%S+', n end
  return '^(' .. table.concat(words, ' ', 1, place.given_id - 1) .. ') ' ..
    table.concat(words, ' ', place.given_id, place.tokens)
end

-- Read the entries of groups that leave, each with one search. Return lists of single words, and two more lists:
-- `remembered`, the part of each entry that is remembered, or false for a group without an entry; `replayed`, whether
-- the group has entered a replay buffer.
local function read_leaving(entries)
  local pattern, remembered, replayed = leaving_pattern(), {}, {}
  local payload_bytes, lane, given_id, tokens = {}, {}, {}, {}
  for n, entry in ipairs(entries) do
    remembered[n], replayed[n] = false, string.sub(entry or '', -2) ~= ' -'
    if entry then remembered[n], payload_bytes[n], lane[n], given_id[n], tokens[n] = string.match(entry, pattern) end
  end
  local words = {payload_bytes = payload_bytes, lane = lane, given_id = given_id, tokens = tokens}
  words.remembered, words.replayed = remembered, replayed
  return words
end

-- Return a word of an entry; nil for nothing.
local function entry_word(entry, name)
  local pattern = patterns[name] or '^' .. words_before(name) .. '(%S+)'
  patterns[name] = pattern
  local word = string.match(entry, pattern)
  return word ~= '-' and word or nil
end

-- Return an entry with one word replaced.
local function with_entry_word(entry, name, word)
  local before, after = string.match(entry, '^(' .. words_before(name) .. ')%S+(.*)$')
  return before .. word .. after
end
