-- large.lua - for large.py: runs limiters and muldiv. Each line of the input names a limiter and
-- its arguments, or "m" and those of muldiv; "new" forgets the state.
local muldiv = dofile(arg[1] .. "/muldiv.lua")
local limiters, state = {}, nil
for name in arg[2]:gmatch("%S+") do limiters[name] = assert(loadfile(arg[1] .. "/" .. name .. ".lua"))(muldiv) end
for line in io.lines() do
  local n = {}
  for word in line:gmatch("%S+") do n[#n + 1] = tonumber(word) or word end
  if n[1] == "m" then
    print(("%.0f %.0f"):format(muldiv(n[2], n[3], n[4])))
  elseif n[1] == "new" then
    state = nil
  else
    local granted, remaining, retry_after, reset, new_state = limiters[n[1]](state, n[2], n[3], n[4], n[5], n[6], n[7])
    if new_state then state = reset > 0 and new_state or nil end
    print(("%.0f %.0f %.0f %.0f"):format(granted, remaining, retry_after, reset))
  end
end
