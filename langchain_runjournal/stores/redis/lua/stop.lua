-- Note the request to stop a run that has not ended; the first cause stays. ARGV from 3: id, cause
local id, run = ARGV[3], key('run', ARGV[3])
local found = call('HMGET', run, 'owner', 'status', 'stop')
if found[1] and not found[3] and (found[2] == 'running' or found[2] == 'paused') then
  call('UNLINK', base .. ':nothing') -- Redis refuses no command after the first write, also when it is out of memory
  call('HSET', run, 'stop', ARGV[4])
  call('SADD', key('stops', found[1]), id)
  tell()
end
return {'ok'}
