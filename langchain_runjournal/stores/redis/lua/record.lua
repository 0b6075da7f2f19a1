-- Write or delete a record, if it has a version. Return its version, its number and its group ('g' and the group, or '').
-- ARGV from 3: which call this is, space, key, what begins the names of its space, version ('' for any), group ('g' and the
-- group, or ''), text ('t' and the text, or '' to delete the record)
local before = answered(ARGV[3])
if before then return before end
local place = key('record', ARGV[6] .. ARGV[5])
local function of_group(group) return key('records-of', ARGV[6] .. string.sub(group, 2)) end
local old = call('HMGET', place, 'version', 'number', 'group')
if ARGV[7] ~= '' and ARGV[7] ~= (old[1] or '0') then return {'stale'} end
if ARGV[9] == '' then
  if not old[1] then return {'stale'} end
  call('UNLINK', place)
  call('ZREM', key('records', ARGV[4]), ARGV[5])
  if old[3] ~= '' then call('ZREM', of_group(old[3]), ARGV[5]) end
  return answer(ARGV[3], {'ok', old[1], old[2], old[3]})
end
local version = string.format('%d', call('HINCRBY', KEYS[1], 'records', 1))
local number = old[2] or version
local group = ARGV[8] ~= '' and ARGV[8] or old[3] or ''
local text = string.sub(ARGV[9], 2)
call('HSET', place, 'space', ARGV[4], 'key', ARGV[5], 'group', group, 'version', version, 'number', number, 'text', text)
call('ZADD', key('records', ARGV[4]), number, ARGV[5])
if old[3] and old[3] ~= '' and old[3] ~= group then call('ZREM', of_group(old[3]), ARGV[5]) end
if group ~= '' then call('ZADD', of_group(group), number, ARGV[5]) end
return answer(ARGV[3], {'ok', version, number, group})
