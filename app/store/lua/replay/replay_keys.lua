-- replay_keys: the keys of a run's replay buffer, or of a snapshot of it (not a command of its own).
--
local RUN = KEYS[1]  -- hash: run clock, policy version; its name is the channel that waiting requests listen to
local REPLAY = KEYS[2]  -- hash: configuration, revision, session, totals, random counter
local CHUNKS = KEYS[3]  -- hash: chunk id -> entry (replay_chunks)
local ORDER = KEYS[4]  -- zset: sampleable chunks by their id, which is the number of their insertion
local WEIGHTS = KEYS[5]  -- zset: the same by weight
local VERSIONS = KEYS[6]  -- zset: the same by version
local USES = KEYS[7]  -- zset: the same by acknowledged uses, negative: the most used come first
local RESERVED = KEYS[8]  -- zset: chunks whose uses are all reserved or counted, by version
local RESERVED_ORDER = KEYS[9]  -- zset: the same by their id
local RESERVED_WEIGHTS = KEYS[10]  -- zset: the same by weight
local RESERVED_USES = KEYS[11]  -- zset: the same by acknowledged uses, negative
local ARCHIVED = KEYS[12]  -- zset: chunks of former sessions that are kept for inspection, by id
local VERSION_COUNTS = KEYS[13]  -- hash: version -> sampleable chunks
local FRAGMENTS = KEYS[14]  -- hash: fragment id -> 'chunk bytes checksum worker session number version facts'
local WORKERS = KEYS[15]  -- hash: worker -> its state
local DUE = KEYS[16]  -- zset: worker -> run clock at which to check the worker, ms
local SAMPLES = KEYS[17]  -- hash: sample id -> JSON: its chunks, and facts about its draw
local SAMPLE_STATES = KEYS[18]  -- hash: sample id -> JSON of its lease
local REQUESTS = KEYS[19]  -- hash: request id -> id of its sample, while the sample is held
local ENTERING = KEYS[20]  -- zset: groups of acknowledged batches that will become chunks, by order of entry
local UNREFERENCED = KEYS[21]  -- zset: payloads that no index entry names, by run clock, or -1 once marked for deletion
local HISTORY = KEYS[22]  -- hash: 'sample:ID' -> how it ended
local ENDED = KEYS[23]  -- zset: those samples by the run clock at which they are forgotten, ms
