-- Delete runs, and return the ids of those that existed. Their owners' spools may still hold them: their ids stay for a while.
-- ARGV from 3: which call this is, 1 to delete only runs that are done, ids
local before = answered(ARGV[3])
if before then return before end
local found = {'ok'}
for i = 5, #ARGV do
  local id = ARGV[i]
  local old = placed(id)
  if old and (ARGV[4] ~= '1' or old.done) then
    local owner = call('HGET', key('run', id), 'owner')
    call('UNLINK', key('run', id), key('events', id))
    delist(id, old)
    call('SREM', key('stops', owner), id)
    call('SREM', base .. ':untidy', id)
    local beats = call('HGET', base .. ':owners', owner)
    if beats then call('HSET', key('deleted', owner), id, string.match(beats, '^%d+')) end
    found[#found + 1] = id
  end
end
if #found == 1 then return found end
tell()
return answer(ARGV[3], found)
