-- Give a run that is at `epoch`, and not done, to another owner. ARGV from 3: id, owner, epoch, which call this is
local id, run = ARGV[3], key('run', ARGV[3])
local found = call('HMGET', run, 'owner', 'epoch', 'done', 'call', 'status', 'stop')
if not found[1] then return {'ok', 0} end
if found[4] == ARGV[6] then return {'ok', 1} end -- the answer to this call was lost
if found[3] == '1' or found[2] ~= ARGV[5] then return {'ok', 0} end
call('UNLINK', base .. ':nothing') -- Redis refuses no command after the first write, also when it is out of memory
call('HSET', run, 'owner', ARGV[4], 'epoch', tonumber(ARGV[5]) + 1, 'call', ARGV[6])
if found[6] and (found[5] == 'running' or found[5] == 'paused') then
  call('SREM', key('stops', found[1]), id)
  call('SADD', key('stops', ARGV[4]), id)
end
tell()
return {'ok', 1}
