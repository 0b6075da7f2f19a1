-- Undo `begin` for a run without events. ARGV from 3: which call this is, id, owner
local before = answered(ARGV[3])
if before then return before end
local id, owner = ARGV[4], ARGV[5]
local run = key('run', id)
local found = call('HMGET', run, 'owner', 'last')
if found[1] ~= owner or found[2] ~= '0' then return {'ok', 0} end
local old = placed(id)
call('UNLINK', run)
delist(id, old)
call('SREM', key('stops', owner), id)
tell()
return answer(ARGV[3], {'ok', 1})
