-- Return ids and causes, in turn, of the runs that an owner is asked to stop. ARGV from 3: owner
local found = {'ok'}
for _, id in ipairs(call('SMEMBERS', key('stops', ARGV[3]))) do
  local stop = call('HMGET', key('run', id), 'stop', 'owner')
  if stop[1] and stop[2] == ARGV[3] then
    found[#found + 1] = id
    found[#found + 1] = stop[1]
  end
end
return found
