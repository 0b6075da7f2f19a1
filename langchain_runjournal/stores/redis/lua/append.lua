-- Store a batch, all or nothing: first every run is compared with what the caller takes it for, then everything is written.
-- The first write is one that Redis refuses when it is out of memory; after the first write it refuses none.
--
-- ARGV from 3: owner, seconds to keep a run that is done (0: for ever), number of runs, and for each run
--   id, epoch, last, version: what the caller takes the run for; version 0: there is no such run
--   1 if its events replace those that are there, else 0
--   0, or 1 and a row: status, thread ('t' and its id, or ''), done, ended_at, stop ('s' and its cause, or ''), rest, settled
--   number of entries, and for each: the seq of its last event, its text
--
-- Most batches change no row, and end where `rows` begins: nothing is defined before that which they do not need.
local owner, count = ARGV[3], tonumber(ARGV[5])
local at, changed, runs, has_rows = 6, nil, {}, false
for i = 1, count do
  local id, version = ARGV[at], ARGV[at + 3]
  local there = call('HMGET', base .. ':run:' .. id, 'owner', 'epoch', 'last', 'version')
  if there[4] ~= version or there[3] ~= ARGV[at + 2] or there[1] ~= owner or there[2] ~= ARGV[at + 1] then
    if there[1] or version ~= '0' then
      changed = changed or {'stale'}
      changed[#changed + 1] = id
    end
  end
  runs[i] = at
  if ARGV[at + 5] == '1' then
    has_rows = true
    at = at + 13
  else
    at = at + 6
  end
  at = at + 1 + 2 * ARGV[at]
end
if changed or has_rows then
  -- A run that is as the caller takes it for is in no other store: only here the store may be another one.
  local id = call('HGET', KEYS[1], 'id')
  if id ~= ARGV[1] then return {'gone', id or ''} end
  if changed then return changed end
end

for i = 1, count do
  at = runs[i]
  local id = ARGV[at]
  local run, events = base .. ':run:' .. id, base .. ':events:' .. id
  local entries = at + (ARGV[at + 5] == '1' and 13 or 6)
  local end_ = entries + 2 * ARGV[entries]
  local ttl, replace = -1, ARGV[at + 4] == '1'
  if end_ > entries then call('HSET', run, 'last', ARGV[end_ - 1]) end
  if replace then
    ttl = call('PTTL', run)
    call('SREM', base .. ':untidy', id)
  end
  if replace or ARGV[at + 3] == '0' then call('UNLINK', events) end
  for n = entries + 1, end_, 2 do call('XADD', events, ARGV[n] .. '-0', 's', ARGV[n + 1]) end
  if ttl > 0 then call('PEXPIRE', events, ttl) end
end
tell()
if not has_rows then return {'ok'} end
