-- One limiter as a plain Redis script, for redis-cli --eval or any client. The lines above define
-- `limiter` and `exact` (whether the state must expire exactly at its reset).
--
-- KEYS   [1] the state. The answer for a deduplication id is stored under KEYS[1] ":d:" ID
-- ARGV   limit, period (µs), burst (default: limit), cost (1), mode (0), deduplication id or "",
--        offset (µs) or "", now (µs) or "" for the clock of Redis, then the limiter's own options
-- Reply  { granted, remaining, retry_after, reset [, delay] }
--
-- If a charge with a deduplication id was granted, a repeat before its reset is free. It gets the
-- same answer, with the reset counted from the repeat.

local function number(i, default)
  local text = ARGV[i]
  if text == nil or text == "" then return default end
  return tonumber(text) or error("ARGV[" .. i .. "]: a number was expected, not '" .. text .. "'", 0)
end

local limit, period = number(1), number(2)
if not KEYS[1] or not limit or not period or period < 1 then
  return redis.error_reply("ERR expected KEYS: state; ARGV: limit, period (1 or more), burst, cost, mode, id, offset, now, options")
end
local burst, cost, mode, offset, now = number(3, limit), number(4, 1), number(5, 0), number(7), number(8)
-- ms. If the caller passes its own clock, keys must not expire too early by the clock of Redis.
local margin = 3600000
if not now then
  local time = redis.call("TIME")
  now, margin = time[1] * 1000000 + time[2], 0
end

local first_answer
if ARGV[6] and ARGV[6] ~= "" and cost > 0 then
  first_answer = KEYS[1] .. ":d:" .. ARGV[6]
  local fields = {}
  for field in string.gmatch(redis.call("GET", first_answer) or "", "-?%d+") do fields[#fields + 1] = tonumber(field) end
  local ends = table.remove(fields, 1)
  if ends and now < ends then
    fields[4] = ends - now
    return fields
  end
end

local options = {}
for i = 9, #ARGV do options[i - 8] = tonumber(ARGV[i]) or ARGV[i] end

local state = redis.call("GET", KEYS[1]) or nil
local granted, remaining, retry_after, reset, new_state, delay, _, lasts =
  limiter(state, now, limit, period, burst, cost, mode, offset, unpack(options))
local answer = { granted, remaining, retry_after, reset, delay }

if new_state then
  lasts = lasts or reset
  local ms = math.min(math.ceil(lasts / 1000), 1e13) + margin
  if lasts > 0 then
    -- The expiry of driver.lua, which may use the same key, plus 1 ms since Redis truncates its
    -- clock to ms.
    redis.call("SET", KEYS[1], new_state, "PX", exact and ms or ms + 1 + math.ceil((4194304 - (now + lasts) % 4194304) / 1000))
  else
    redis.call("DEL", KEYS[1])
  end
  if first_answer and granted > 0 and reset > 0 then
    local fields = {}
    for i = 1, #answer do fields[i] = string.format("%.0f", answer[i]) end
    redis.call("SET", first_answer, string.format("%.0f ", now + reset) .. table.concat(fields, " "), "PX", ms)
  end
end
return answer
