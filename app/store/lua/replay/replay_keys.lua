-- replay_keys: the keys that every script of the replay buffer gets, by name (not a command of its own).
--
--  1 run             hash  run clock, policy version; names the channel that those who wait listen to
--  2 replay          hash  configuration, revision, session, totals, random counter
--  3 chunks          hash  chunk id -> entry (replay_chunks)
--  4 order           zset  sampleable chunks by their id, which is the number of their insertion
--  5 weights         zset  the same by weight
--  6 versions        zset  the same by version
--  7 uses            zset  the same by acknowledged uses, negative: the most used come first
--  8 reserved        zset  chunks whose uses are all reserved or counted, by version
--  9 reserved_order  zset  the same by their id
-- 10 reserved_weights zset  the same by weight
-- 11 reserved_uses   zset  the same by acknowledged uses, negative
-- 12 archived            zset  chunks of former sessions that are kept for inspection, by id
-- 13 version_counts  hash  version -> sampleable chunks
-- 14 fragments       hash  fragment id -> 'chunk bytes checksum worker session number version facts'
-- 15 workers         hash  worker -> its state
-- 16 due             zset  worker -> run clock at which to look after it, ms
-- 17 samples         hash  sample id -> JSON: what it was given
-- 18 sample_states   hash  sample id -> JSON of its lease
-- 19 requests        hash  request id -> id of the sample that it took, while that is held
-- 20 entering        zset  groups of acknowledged batches that are to become chunks, by the order they came in
-- 21 unreferenced       zset  payloads that no index entry names, -1 once marked for deletion
-- 22 history         hash  'sample:ID' -> how it ended
-- 23 ended           zset  the same by the run clock at which that is forgotten, ms
local RUN, REPLAY, CHUNKS, ORDER, WEIGHTS, VERSIONS, USES = unpack(KEYS, 1, 7)
local RESERVED, RESERVED_ORDER, RESERVED_WEIGHTS, RESERVED_USES, ARCHIVED = unpack(KEYS, 8, 12)
local VERSION_COUNTS, FRAGMENTS, WORKERS, DUE, SAMPLES, SAMPLE_STATES, REQUESTS, ENTERING = unpack(KEYS, 13, 20)
local UNREFERENCED, HISTORY, ENDED = unpack(KEYS, 21, 23)
