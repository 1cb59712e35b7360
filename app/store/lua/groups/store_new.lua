-- store_new: store the groups that are new, and build the reply of admit_groups (not a command of its own).
--
local function store_new(run, outcomes, results)
  local new = index_groups(outcomes, run)
  note_senders(new, run.clock_ms)
  write_token_groups()
  local starvation = count_starvation(new, run.clock_ms)
  flush()
  if #new > 0 then
    write_run(run)
    redis.call('PUBLISH', RUN, 'admitted')
  end
  return {results, starvation and redis.call('HGETALL', STARVATION) or {}}
end
