-- Around a limiter of your own: what goes wrong in it is the matter of the requests that it is asked for, and of nobody else in the call.
--
-- A failure is a rejection with retry_after -2, and what went wrong in place of the delay. So the driver charges nothing for such a request,
-- and weir lets on_failure decide it. A limiter fails that raises an error, or returns what the contract does not allow.

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

-- Also of a value that fails when it is asked for its text.
local function words(value)
  local fine, text = pcall(tostring, value)
  return fine and type(text) == "string" and text:sub(1, 300) or "a " .. type(value) .. " that has no text"
end

local function failed(why) return 0, 0, -2, 0, nil, words(why) end

-- `made`: did its file load, and `run` is what it returned? Else `run` is the error.
return function(made, run)
  if not made or type(run) ~= "function" then
    local why = made and "its file returned no function" or run
    if #ARGV == 1 then error(words(why), 0) end                      -- a check, which wants to hear of it
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
