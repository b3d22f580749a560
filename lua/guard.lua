-- Wraps a custom limiter, so that its failure affects only the requests that use it, not others in
-- the same call.
--
-- A limiter fails if it raises an error or returns values that the contract does not allow. A
-- failure is reported as a rejection with retry_after -2 and the error message in place of the
-- delay. So the driver charges nothing for the request, unless it only tries the limit, and weir
-- applies on_failure.

local error, pcall, tostring, type, floor = error, pcall, tostring, type, math.floor

local DELAY_MAX = 31622400000000   -- 366 days, as max_delay

local function whole(value, least) return type(value) == "number" and value >= least and value < 9007199254740992 and value == floor(value) end

local function fault(granted, remaining, retry_after, reset, state, delay, cost)
  if not whole(granted, cost < 0 and cost or 0) or granted > (cost > 1 and cost or 1) then return "granted", granted end
  if not whole(remaining, 0) then return "remaining", remaining end
  if not whole(retry_after, -1) then return "retry_after", retry_after end
  if not whole(reset, 0) then return "reset", reset end
  if state ~= nil and type(state) ~= "string" and type(state) ~= "number" then return "new_state", type(state) end
  if delay ~= nil and (not whole(delay, 0) or delay > DELAY_MAX) then return "delay", delay end
end

-- Returns a value as text, even if its __tostring fails.
local function words(value)
  local fine, text = pcall(tostring, value)
  return fine and type(text) == "string" and text:sub(1, 300) or "a " .. type(value) .. " that has no text"
end

local function failed(why) return 0, 0, -2, 0, nil, words(why) end

-- made: whether the file loaded. run: the file's result or, if it did not load, the error.
return function(made, run)
  if not made or type(run) ~= "function" then
    local why = made and "its file returned no function" or run
    if #ARGV == 1 then error(words(why), 0) end   -- a call without requests: compose_check()
    return function() return failed(why) end
  end
  return function(state, now, limit, period, burst, cost, ...)
    local fine, granted, remaining, retry_after, reset, new_state, delay = pcall(run, state, now, limit, period, burst, cost, ...)
    if not fine then return failed(granted) end
    local what, value = fault(granted, remaining, retry_after, reset, new_state, delay, cost)
    if what then return failed("it returned " .. words(value) .. " as " .. what) end
    if granted == 0 and new_state and cost >= 0 and not state then return failed("it returned a new state with a rejection") end
    return granted, remaining, retry_after, reset, new_state, delay
  end
end
