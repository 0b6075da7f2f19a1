-- Take runs that have expired out of the indexes, at most 100. Return how many were looked at.
local expiring, now = base .. ':expiring', call('TIME')[1]
local page = call('ZRANGEBYSCORE', expiring, '-inf', now, 'LIMIT', 0, 100)
for _, words in ipairs(page) do
  local number, size = string.sub(words, 1, 16), tonumber(string.sub(words, 17, 24))
  local id, thread = string.sub(words, 25, 24 + size), string.sub(words, 25 + size)
  local now_there = call('HGET', key('run', id), 'number')
  if not now_there or tonumber(now_there) ~= tonumber(number) then
    if not now_there then
      call('ZREM', base .. ':runs', id)
      for _, status in ipairs({'running', 'paused', 'completed', 'interrupted', 'failed'}) do
        call('ZREM', key('status', status), id)
      end
      if thread ~= '' then call('ZREM', key('thread', string.sub(thread, 2)), id) end
      call('SREM', base .. ':untidy', id)
      call('UNLINK', key('events', id))
    elseif thread ~= '' and call('HGET', key('run', id), 'thread') ~= string.sub(thread, 2) then
      call('ZREM', key('thread', string.sub(thread, 2)), id) -- another run has got this id, on another thread
    end
    local before = number .. id
    call('ZREM', base .. ':done', before)
    call('ZREM', expiring, words)
  elseif call('PTTL', key('run', id)) < 0 then
    call('ZREM', expiring, words) -- it goes on, or is to be settled again
  end
end
return {'ok', #page}
