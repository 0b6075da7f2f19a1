-- Refuse to change a store that is not the one which the caller opened.
do
  local id = call('HGET', KEYS[1], 'id')
  if id ~= ARGV[1] then return {'gone', id or ''} end
end
