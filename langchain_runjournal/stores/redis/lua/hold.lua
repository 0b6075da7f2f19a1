-- Make a holder the holder of a thread that has none, or another one that the caller names. Return its holder.
-- ARGV from 3: thread, holder, instead of ('h' and a holder, or '')
local held = key('held', ARGV[3])
local found = call('GET', held)
if not found or 'h' .. found == ARGV[5] then
  call('UNLINK', base .. ':nothing') -- Redis refuses no command after the first write, also when it is out of memory
  call('SET', held, ARGV[4])
  found = ARGV[4]
end
return {'ok', found}
