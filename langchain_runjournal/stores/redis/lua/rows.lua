-- The end of `append`: the rows of the batch, for the indexes.
local keep = tonumber(ARGV[4])
for i = 1, count do
  at = runs[i]
  if ARGV[at + 5] == '1' then
    local id = ARGV[at]
    local run, events, old = key('run', id), key('events', id), nil
    if ARGV[at + 3] == '0' then
      call('HSET', run, 'number', call('HINCRBY', KEYS[1], 'begun', 1), 'owner', owner, 'epoch', ARGV[at + 1])
    else
      old = placed(id)
      delist(id, old)
    end
    call('HINCRBY', run, 'version', 1)
    call('HSET', run, 'status', ARGV[at + 6], 'done', ARGV[at + 8], 'ended_at', ARGV[at + 9], 'rest', ARGV[at + 11],
      'settled', ARGV[at + 12])
    if ARGV[at + 7] ~= '' then
      call('HSET', run, 'thread', string.sub(ARGV[at + 7], 2))
    else
      call('HDEL', run, 'thread')
    end
    if ARGV[at + 10] ~= '' and (old == nil or is_going_on(old)) then
      call('HSETNX', run, 'stop', string.sub(ARGV[at + 10], 2))
    end
    local new = placed(id)
    enlist(id, new)
    if not is_going_on(new) then
      call('SREM', key('stops', owner), id)
      call('SADD', base .. ':untidy', id)
    elseif call('HEXISTS', run, 'stop') == 1 then
      call('SADD', key('stops', owner), id)
    end
    if new.done and keep > 0 then
      call('EXPIRE', run, keep)
      call('EXPIRE', events, keep)
      call('ZADD', base .. ':expiring', call('TIME')[1] + keep, last_words(id, new))
    elseif old and old.done and not new.done then
      call('PERSIST', run)
      call('PERSIST', events)
    elseif new.done and call('PTTL', run) > 0 then -- it expires all the same, and `delist` has taken it out
      call('ZADD', base .. ':expiring', call('TIME')[1] + call('TTL', run) + 1, last_words(id, new))
    end
  end
end
return {'ok'}
