-- Make a store, if there is none, and prove that this user may use every command that the other scripts need.
-- KEYS[1] is the hash of the store. ARGV: id of a new store, number of this format
local base = string.sub(KEYS[1], 1, -7)

-- With the name of the command: the server does not say which one it refuses.
local function call(...)
  local found = redis.pcall(...)
  if type(found) == 'table' and found.err then error(({...})[1] .. ': ' .. found.err, 0) end
  return found
end

-- A server that is out of memory refuses no command after the first write: a store that is there can be opened all the same,
-- by whoever comes to delete runs. One that is not there is refused by the next write.
if call('EXISTS', KEYS[1]) == 1 then call('UNLINK', base .. ':nothing') end
if call('HSETNX', KEYS[1], 'id', ARGV[1]) == 1 then
  local newest = call('ZREVRANGE', base .. ':runs', 0, 0, 'WITHSCORES')
  call('HSET', KEYS[1], 'format', ARGV[2], 'begun', newest[2] or '0')
end
local probe = base .. ':probe:'
call('HSET', probe .. 'h', 'n', '1')
call('HINCRBY', probe .. 'h', 'n', 1)
call('HGET', probe .. 'h', 'n')
call('HMGET', probe .. 'h', 'n')
call('HGETALL', probe .. 'h')
call('HKEYS', probe .. 'h')
call('HEXISTS', probe .. 'h', 'n')
call('HSETNX', probe .. 'h', 'n', '1')
call('HDEL', probe .. 'h', 'o')
call('XADD', probe .. 'x', 'MAXLEN', '~', '1000', '*', 'by', 'n')
call('XRANGE', probe .. 'x', '-', '+', 'COUNT', 1)
call('XREVRANGE', probe .. 'x', '+', '-', 'COUNT', 1)
call('XREAD', 'STREAMS', probe .. 'x', '0')
call('ZADD', probe .. 'z', 1, 'n')
call('ZRANGE', probe .. 'z', 0, 0)
call('ZRANGEBYSCORE', probe .. 'z', '-inf', '+inf', 'LIMIT', 0, 1)
call('ZREVRANGEBYSCORE', probe .. 'z', '+inf', '-inf', 'LIMIT', 0, 1)
call('ZCARD', probe .. 'z')
call('ZCOUNT', probe .. 'z', '-inf', '+inf')
call('ZSCORE', probe .. 'z', 'n')
call('ZREVRANGE', probe .. 'z', 0, 0)
call('ZREM', probe .. 'z', 'n')
call('SADD', probe .. 's', 'n')
call('SMEMBERS', probe .. 's')
call('SRANDMEMBER', probe .. 's', 1)
call('SREM', probe .. 's', 'n')
call('SET', probe .. 'g', 'n')
call('GET', probe .. 'g')
call('EXPIRE', probe .. 'g', 10)
call('PEXPIRE', probe .. 'g', 10000)
call('PTTL', probe .. 'g')
call('PERSIST', probe .. 'g')
call('EXISTS', probe .. 'g')
call('TIME')
call('UNLINK', probe .. 'h', probe .. 'x', probe .. 'z', probe .. 's', probe .. 'g')
return call('HMGET', KEYS[1], 'id', 'format')
