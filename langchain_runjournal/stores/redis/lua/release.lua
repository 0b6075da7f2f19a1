-- Remove the holder of a thread, if it is this one. ARGV from 3: thread, holder
local held = key('held', ARGV[3])
if call('GET', held) == ARGV[4] then call('UNLINK', held) end
return {'ok'}
