-- drop_keys: the keys and the reason of drop_groups and drop_versions (not a command of its own).
--
local RUN = KEYS[1]  -- hash: run clock, epoch, policy version, totals, latest group
local GROUPS = KEYS[2]  -- hash: group id -> entry
local LANES = KEYS[3]  -- hash: lane -> groups queued
local BUFFERS = KEYS[4]  -- hash: lane -> groups buffered
local VERSIONS = KEYS[5]  -- zset: group id -> policy version
local DROPPED = KEYS[6]  -- hash: 'reason:environment' -> groups
local UNREFERENCED = KEYS[7]  -- zset: payloads to delete
local KNOWN = KEYS[8]  -- hash: name of a group -> its id, and how it ended
local LEFT = KEYS[9]  -- list: 'clock_ms name name ...' of groups that have left
local LANE_HEADS = KEYS[10]  -- zset: lane -> arrival of its oldest group
local LEDGER = KEYS[11]  -- hash: 'state:environment' -> tokens
local TOKEN_QUEUES = KEYS[12]  -- hash: account -> 'groups bytes' queued, for each account that has a queue limit
local TOKEN_GROUPS = KEYS[13]  -- hash: id of a group of such an account -> 'account bytes'
local PAYLOADS = KEYS[14]  -- strings: what the keys of all payloads begin with
local reason = ARGV[1]
