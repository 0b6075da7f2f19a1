-- Begin a run on its thread, unless other runs are in the way: then return their ids.
-- ARGV from 3: id, thread ('t' and its id, or ''), owner, rest, which call this is, ids that are not in the way
local id, thread = ARGV[3], ARGV[4] ~= '' and string.sub(ARGV[4], 2)
local run, found = key('run', id), {'ok'}
if call('HGET', run, 'call') == ARGV[7] then return found end -- the answer to this call was lost
if thread then
  local besides = {}
  for i = 8, #ARGV do besides[ARGV[i]] = true end
  for _, other in ipairs(call('ZRANGE', key('open', thread), 0, -1)) do
    if other ~= id and not besides[other] and call('HGET', key('run', other), 'status') == 'running' then
      found[#found + 1] = other
    end
  end
end
if call('EXISTS', run) == 1 then found[#found + 1] = id end
if #found > 1 then return found end
call('HSET', run, 'number', call('HINCRBY', KEYS[1], 'begun', 1), 'owner', ARGV[5], 'epoch', '1', 'last', '0', 'version', '1',
  'status', 'running', 'settled', '1', 'done', '0', 'ended_at', '', 'rest', ARGV[6], 'call', ARGV[7])
if thread then call('HSET', run, 'thread', thread) end
call('UNLINK', key('events', id))
enlist(id, placed(id))
tell()
return found
