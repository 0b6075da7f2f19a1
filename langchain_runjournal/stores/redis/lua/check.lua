-- Return id and problem, in turn, for each run that does not agree with the indexes or with its stream. ARGV from 3: ids
local found = {'ok'}
local function say(id, problem)
  found[#found + 1] = id
  found[#found + 1] = problem
end
for i = 3, #ARGV do
  local id = ARGV[i]
  local run = placed(id)
  local function is_in(index) return call('ZSCORE', index, id) == run.number end
  if not run then
    if call('ZSCORE', base .. ':runs', id) then say(id, 'is listed, and does not exist') end
  else
    if not is_in(base .. ':runs') then say(id, 'is not listed') end
    if not is_in(key('status', run.status)) then say(id, 'is not listed by its status') end
    if run.thread and not is_in(key('thread', run.thread)) then say(id, 'is not listed by its thread') end
    if is_open(run) ~= is_in(base .. ':open') then say(id, 'is listed wrongly among the runs that are not settled') end
    if run.thread and is_open(run) ~= is_in(key('open', run.thread)) then
      say(id, 'is listed wrongly among the runs of its thread that are not settled')
    end
    if run.done ~= (call('ZSCORE', base .. ':done', in_order(id, run)) ~= false) then
      say(id, 'is listed wrongly among the runs that can be pruned')
    end
    local newest = call('XREVRANGE', key('events', id), '+', '-', 'COUNT', 1)
    local last = newest[1] and string.match(newest[1][1], '^%d+') or '0'
    local said = call('HGET', key('run', id), 'last')
    if last ~= said then say(id, 'ends at seq ' .. tostring(said) .. ', and its events at seq ' .. last) end
  end
end
return found
