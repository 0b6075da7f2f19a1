-- Return what names a record and its problem, in turn, for each one that the indexes do not have.
-- ARGV from 3: what follows 'record:' in the keys of records
local found = {'ok'}
for i = 3, #ARGV do
  local space, name, group, number = unpack(call('HMGET', key('record', ARGV[i]), 'space', 'key', 'group', 'number'))
  local problem
  if not (space and name and group and number) then
    if call('EXISTS', key('record', ARGV[i])) == 1 then problem = 'lacks a field' end
  else
    local head = string.sub(ARGV[i], 1, #ARGV[i] - #name)
    if call('ZSCORE', key('records', space), name) ~= number then
      problem = 'is not listed by its space'
    elseif group ~= '' and call('ZSCORE', key('records-of', head .. string.sub(group, 2)), name) ~= number then
      problem = 'is not listed by its group'
    end
  end
  if problem then
    found[#found + 1] = ARGV[i]
    found[#found + 1] = problem
  end
end
return found
