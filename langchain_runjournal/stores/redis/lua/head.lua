-- The beginning of each script. KEYS[1] is the hash of the store; ARGV[1] the id that the store must have, and ARGV[2] who
-- writes ('' for a change that no other process needs to hear of). The keys of one store share one hash tag, and so one slot.
local base = string.sub(KEYS[1], 1, -7)
local function key(kind, name) return base .. ':' .. kind .. ':' .. name end
local call = redis.call

-- Tell the blocking readers of all processes. A stream and not PUBLISH: a reader that was away for a moment misses nothing.
local function tell()
  if ARGV[2] ~= '' then call('XADD', base .. ':changes', 'MAXLEN', '~', '1000', '*', 'by', ARGV[2]) end
end
