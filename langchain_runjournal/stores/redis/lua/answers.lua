-- The answer to a call that deletes something: the caller asks again if the answer was lost, and then nothing is left to delete.
local function answered(which)
  local found = call('GET', key('answer', which))
  return found and cmsgpack.unpack(found)
end

local function answer(which, found)
  call('SET', key('answer', which), cmsgpack.pack(found), 'EX', 60)
  return found
end

