-- Return a page of an index: the number to go on from ('' at its end), then id and row, in turn.
-- ARGV from 3: index, 1 for newest first, the number to go on from, how many at most, status or '', the fields of a row
local index, newest, from, most, status = ARGV[3], ARGV[4] == '1', ARGV[5], tonumber(ARGV[6]), ARGV[7]
local fields = {unpack(ARGV, 8)}
local found = {'ok', ''}
local page
if newest then
  page = call('ZREVRANGEBYSCORE', index, from, '-inf', 'WITHSCORES', 'LIMIT', 0, 200)
else
  page = call('ZRANGEBYSCORE', index, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 200)
end
local number = ''
for i = 1, #page, 2 do
  if most == 0 then break end
  number = page[i + 1]
  local run = key('run', page[i])
  if status == '' or call('HGET', run, 'status') == status then
    local row = call('HMGET', run, unpack(fields))
    if row[1] then -- or else it has expired, and the sweeper has not come to it yet
      found[#found + 1] = page[i]
      found[#found + 1] = row
      most = most - 1
    end
  end
end
if #page == 400 or most == 0 then found[2] = number end
return found
