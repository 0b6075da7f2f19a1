-- Note a heartbeat, and forget the deleted runs that the spool of the owner no longer holds.
-- ARGV from 3: owner, its row, which begins with the number of its heartbeats; deletions before this heartbeat are forgotten
call('UNLINK', base .. ':nothing') -- Redis refuses no command after the first write, also when it is out of memory
call('HSET', base .. ':owners', ARGV[3], ARGV[4])
local deleted = key('deleted', ARGV[3])
local all, before = call('HGETALL', deleted), tonumber(ARGV[5])
for i = 1, #all, 2 do
  if tonumber(all[i + 1]) < before then call('HDEL', deleted, all[i]) end
end
return {'ok'}
