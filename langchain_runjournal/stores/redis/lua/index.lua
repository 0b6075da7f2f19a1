-- The indexes of runs.
local PLACED = {'number', 'status', 'thread', 'done', 'ended_at'}

-- Return what the indexes need of a run, or nil if there is no such run.
local function placed(id)
  local found = call('HMGET', key('run', id), unpack(PLACED))
  if not found[1] then return nil end
  return {number = found[1], status = found[2], thread = found[3], done = found[4] == '1', ended_at = found[5]}
end

local function is_going_on(run) return run.status == 'running' or run.status == 'paused' end
local function is_open(run) return run.status ~= 'paused' and not run.done end
local function in_order(id, run) return string.format('%016d', run.number) .. id end

-- The member of `expiring`: the sweeper has no other source when the run itself has expired.
local function last_words(id, run)
  return string.format('%016d%08d', run.number, #id) .. id .. (run.thread and 't' .. run.thread or '')
end

local function enlist(id, run)
  call('ZADD', base .. ':runs', run.number, id)
  call('ZADD', key('status', run.status), run.number, id)
  if run.thread then call('ZADD', key('thread', run.thread), run.number, id) end
  if is_open(run) then
    call('ZADD', base .. ':open', run.number, id)
    if run.thread then call('ZADD', key('open', run.thread), run.number, id) end
  end
  if run.done then call('ZADD', base .. ':done', run.ended_at, in_order(id, run)) end
end

local function delist(id, run)
  call('ZREM', base .. ':runs', id)
  call('ZREM', key('status', run.status), id)
  call('ZREM', base .. ':open', id)
  if run.thread then
    call('ZREM', key('thread', run.thread), id)
    call('ZREM', key('open', run.thread), id)
  end
  if run.done then
    call('ZREM', base .. ':done', in_order(id, run))
    call('ZREM', base .. ':expiring', last_words(id, run))
  end
end
