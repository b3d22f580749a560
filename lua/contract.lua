-- Tests whether a limiter follows the contract. `weir check` runs this in a private Redis before
-- the limiter is used for traffic.
--
-- The limiter is called along random schedules (see docs/limiters.md). They cover:
--   - the policy's numbers and others, and numbers that change in between
--   - costs of every sign, and every mode
--   - a clock that stands, advances, jumps and goes back
--   - its own states and invalid ones
--
-- ARGV   its name in messages, its text, limit, period, burst, offset or "", "tell" or "", then its
--        options: "n" and a number, "t" and a text, "b" and 1 or 0. With "tell", each call is
--        logged to Redis before it is made. If a limiter never ends, the last line shows the call.
-- Reply  nothing, or { the violation, the call, the returned values }

local name, text, tell = ARGV[1], ARGV[2], ARGV[7] == "tell"
local policy = { limit = tonumber(ARGV[3]), period = tonumber(ARGV[4]), burst = tonumber(ARGV[5]), offset = tonumber(ARGV[6]) }
local floor, random, format, concat, pcall, type, unpack = math.floor, math.random, string.format, table.concat, pcall, type, unpack
local SCHEDULES, STEPS, STATE_MAX, EXACT = 200, 30, 65536, 9007199254740992
local DELAY_MAX = 31622400000000   -- 366 days, as max_delay

local options, option_count = {}, 0
for i = 8, #ARGV do
  local kind, value = ARGV[i]:sub(1, 1), ARGV[i]:sub(2)
  option_count = option_count + 1
  if kind == "n" then options[option_count] = tonumber(value)
  elseif kind == "b" then options[option_count] = value == "1"
  else options[option_count] = value end
end

-- Forbidden globals. A violation is recorded even if the limiter catches the error.

local touched
local function trap(what)
  return function(_, key)
    touched = touched or ("it uses " .. what .. (type(key) == "string" and "." .. key or "")
                          .. ": a limiter calls nothing and keeps nothing; weir reads the clock and the state, and writes the state")
    error(touched, 2)
  end
end
local function trapped(what)
  local deny = trap(what)
  return setmetatable({}, { __index = deny, __newindex = deny, __call = deny })
end
local calm_math = {}
for key, value in pairs(math) do calm_math[key] = value end
calm_math.random, calm_math.randomseed = nil, nil
setmetatable(calm_math, { __index = trap("math"), __newindex = trap("math") })

local chunk, why = loadstring("local redis, server, KEYS, ARGV, _G, os, load, loadstring, collectgarbage, gcinfo, math, muldiv = ... return (function(...) "
                              .. (text:sub(1, 1) == "#" and "--" or "") .. text .. "\nend)(muldiv)", "=" .. name)
if not chunk then return { why, "", "" } end

local function instance()
  return chunk(trapped("redis"), trapped("redis"), trapped("KEYS"), trapped("ARGV"), trapped("_G"), trapped("os"),
               trap("load"), trap("loadstring"), trap("collectgarbage"), trap("gcinfo"), calm_math,
               muldiv)
end

-- Text of messages. text_of() returns a text even if the value's __tostring fails.

local function text_of(value)
  local fine, text_or_not = pcall(tostring, value)
  return fine and type(text_or_not) == "string" and text_or_not or "a " .. type(value) .. " that has no text"
end

local function show(value)
  if type(value) == "number" then
    return value == floor(value) and math.abs(value) < EXACT and format("%.0f", value) or format("%.17g", value)
  elseif type(value) ~= "string" then
    return text_of(value)
  end
  local head = value:sub(1, 60):gsub('[%c"\\\128-\255]', function(c) return format("\\%03d", c:byte()) end)
  return '"' .. head .. '"' .. (#value > 60 and "... (" .. #value .. " bytes)" or "")
end

local function arguments(q)
  local words = {}
  for i, field in ipairs { "state", "now", "limit", "period", "burst", "cost", "mode", "offset" } do
    words[i] = field .. " " .. show(q[field])
  end
  for i = 1, option_count do words[#words + 1] = (i == 1 and "options " or "") .. show(options[i]) end
  return concat(words, ", ")
end

local function returned(r)
  local words = {}
  for i, field in ipairs { "granted", "remaining", "retry_after", "reset", "new_state", "delay" } do
    if i < 6 or r[6] ~= nil then words[i] = field .. " " .. show(r[i]) end
  end
  return concat(words, ", ")
end

local function fault(what, q, r)
  error({ what, q and arguments(q) or "", r and returned(r) or "" }, 0)
end

-- One call, and the checks of every result.

local function run(limiter, q)
  touched = nil
  if tell then redis.log(redis.LOG_WARNING, "weir contract: " .. arguments(q)) end
  local r = { pcall(limiter, q.state, q.now, q.limit, q.period, q.burst, q.cost, q.mode, q.offset, unpack(options, 1, option_count)) }
  local fine = table.remove(r, 1)
  if touched then fault(touched, q) end
  if not fine then fault("it raises an error: " .. text_of(r[1]), q) end
  return r
end

local function whole(value, least)
  return type(value) == "number" and value == floor(value) and value >= least and value < EXACT
end

local function check_granted(q, r)
  local granted, cost = r[1], q.cost
  if cost < 0 then
    if granted ~= cost then fault("granted must equal a negative cost, which is a refund", q, r) end
  elseif cost == 0 then
    if granted ~= 0 and granted ~= 1 then fault("granted must be 1 or 0 for a cost of 0: whether a cost of 1 would be admitted", q, r) end
  elseif q.mode == 0 and granted ~= 0 and granted ~= cost then
    fault("granted must be the cost or 0 in mode 0", q, r)
  elseif q.mode == 1 and not (whole(granted, 0) and granted <= cost) then
    fault("granted must be a whole number from 0 to the cost in mode 1", q, r)
  elseif q.mode == 2 and granted ~= cost then
    fault("granted must be the cost in mode 2, also if fewer units remain", q, r)
  end
end

local function check_numbers(q, r)
  if not whole(r[2], 0) then fault("remaining must be a whole number, 0 or more", q, r) end
  if not whole(r[3], -1) then fault("retry_after must be a whole number of us, or -1", q, r) end
  if not whole(r[4], 0) then fault("reset must be a whole number of us, 0 or more", q, r) end
  if r[1] == 0 and r[3] == 0 then fault("retry_after must not be 0 for a rejection: it is the time until the next attempt, or -1 for never", q, r) end
  if r[1] ~= 0 and r[3] ~= 0 then fault("retry_after must be 0 if the cost is granted", q, r) end
  if r[6] ~= nil and (not whole(r[6], 0) or r[6] > DELAY_MAX) then fault("delay must be a whole number of us, up to 366 days, or nil", q, r) end
end

local function check_state(q, r)
  local state = r[5]
  if state == nil then return end
  if r[1] == 0 and not q.edited then fault("new_state must be nil for a rejection: only a charge changes the state", q, r) end
  if q.cost == 0 and not q.edited then fault("new_state must be nil for a cost of 0: a check changes nothing", q, r) end
  if type(state) == "number" then
    if state ~= state or state == 1 / 0 or state == -1 / 0 then fault("new_state must be finite if it is a number", q, r) end
  elseif type(state) ~= "string" then
    fault("new_state must be a string, a number or nil", q, r)
  elseif #state > STATE_MAX then
    fault(format("new_state must stay below %d bytes: all of it is read and written with each charge", STATE_MAX), q, r)
  end
end

local function ask(limiter, q)
  local r = run(limiter, q)
  check_granted(q, r)
  check_numbers(q, r)
  check_state(q, r)
  return r
end

local function but(q, changes)
  local copy = {}
  for key, value in pairs(q) do copy[key] = value end
  for key, value in pairs(changes) do copy[key] = value end
  if changes.fresh then copy.state, copy.fresh = nil, nil end
  return copy
end

-- Checks that compare several results.

local function check_pure(q, r)
  local again = run(instance(), q)
  for i = 1, 6 do
    if again[i] ~= r[i] then
      fault("it must be pure: with the same arguments, it returned " .. returned(again) .. " the second time", q, r)
    end
  end
end

local function check_look(limiter, q)
  local plain = ask(limiter, but(q, { cost = 1, mode = 0 }))
  local look_q = but(q, { cost = 0, mode = 0 })
  local look = ask(limiter, look_q)
  if look[1] ~= plain[1] then
    fault(format("a check (cost 0) must give the result for a cost of 1, which here is %s", plain[1] == 1 and "granted" or "rejected"), look_q, look)
  end
  if q.cost > 0 then
    local most_q = but(q, { mode = 1 })
    local most = ask(limiter, most_q)
    if (most[1] > 0) ~= (look[1] > 0) then
      fault(format("mode 1 must charge the remaining units; by the check there are %s", look[1] > 0 and "some" or "none"), most_q, most)
    end
  end
end

-- expires: expiry of the state in the call. same: the state was written with the current numbers;
-- otherwise retry_after cannot be checked.
local function check_retry(limiter, q, r, expires, same)
  if r[1] ~= 0 then return end
  local later
  if r[3] == -1 then
    later = but(q, { fresh = true })
    local fresh = ask(limiter, later)
    if fresh[1] ~= 0 then fault("retry_after must not be -1 (never): the same request is granted without a state", q, r) end
    return
  end
  if not same then return end
  later = but(q, { now = q.now + r[3] })
  if later.now >= expires then later.state = nil end
  local then_r = ask(limiter, later)
  if then_r[1] == 0 then
    fault("retry_after must be long enough: after it, the same request returned " .. returned(then_r), q, r)
  end
end

-- Schedules.

local function below(n) return floor(random() * n) end

local function numbers(kind)
  if kind < 4 then return policy end
  local n = { limit = 1 + below(kind < 8 and 5 or 1000), period = 1000 * (1 + below(100000)) }
  n.burst = policy.burst == policy.limit and n.limit or 1 + below(n.limit * 2)
  n.offset = policy.offset and below(n.period)
  return n
end

local function some_cost(limit)
  local kind = below(20)
  if kind < 2 then return 0 end
  if kind < 4 then return -1 - below(3) end
  if kind == 4 then return limit end
  if kind == 5 then return limit + 1 end
  if kind == 6 then return 1 + below(limit) end
  return kind < 9 and 1 + below(3) or 1
end

local function some_wait(n)
  local kind = below(12)
  if kind < 3 then return 0 end
  if kind < 8 then return 1 + below(2 * n.period / n.limit) end
  if kind < 10 then return below(n.period) end
  return kind == 10 and n.period or below(3 * n.period)
end

local function stored(state)
  return type(state) == "number" and format("%.17g", state) or state
end

local function schedule(limiter)
  local n, now, state, expires = numbers(below(12)), 1790000000000000 + below(1e12), nil, 0
  local left_by, left_at = nil, 0
  for step = 1, STEPS do
    if below(12) == 0 then n = numbers(below(12)) end
    local back = below(60) == 0
    now = back and now - below(n.period) or now + some_wait(n)
    if state and now >= expires then state = nil end
    local cost = some_cost(n.limit)
    local q = { state = state, now = now, limit = n.limit, period = n.period, burst = n.burst, offset = n.offset, cost = cost,
                mode = cost > 0 and below(10) > 6 and 1 + below(2) or cost < 0 and below(2) == 0 and now - below(n.period) or 0,
                edited = state ~= nil and left_by ~= n }     -- may rewrite the state
    local r = ask(limiter, q)
    check_pure(q, r)
    if not back then
      check_look(limiter, q)
      check_retry(limiter, q, r, expires, state == nil or left_by == n and now >= left_at)
    end
    if r[5] ~= nil then
      state, expires = stored(r[5]), now + (r[8] or r[4])
      -- A refund with other numbers may keep those of the state, or not.
      left_by = (cost >= 0 or not q.edited) and n
      left_at = now
      if expires == now then state = nil end
    end
  end
end

-- States of other origin, such as a limiter that had the limit's name before.
local function foreign_states(limiter)
  local states = { "", "x", "-1", "0", "1", "17:3", "1:2:3", "1790000000000000", "1790000000000000:5", "9007199254740993", "{}", "nil", "\0", "\0\0\0\0\0" }
  for i = 1, 40 do
    local bytes = {}
    for j = 1, below(64) do bytes[j] = string.char(below(256)) end
    states[#states + 1] = concat(bytes)
  end
  for _, state in ipairs(states) do
    for cost = -1, 2 do
      ask(limiter, { state = state, now = 1790000000123456, limit = policy.limit, period = policy.period, burst = policy.burst,
                     offset = policy.offset, cost = cost, mode = 0, edited = true })
    end
  end
end

-- Of many requests at one instant, one is rejected or delayed. Otherwise the limiter does not read
-- its own state, for example because "..", which writes 14 digits, has rounded a time in it.
local function ceiling(limiter)
  local AT_ONCE = 1000
  local now, state, q, r = 1790000000123457 + below(1e9), nil, nil, nil
  for _ = 1, AT_ONCE do
    q = { state = state, now = now, limit = 3, period = policy.period, burst = 3, offset = policy.offset, cost = 1, mode = 0 }
    r = ask(limiter, q)
    if r[1] == 0 or (r[6] or 0) > 0 then return end
    if r[5] ~= nil then state = (r[8] or r[4]) > 0 and stored(r[5]) or nil end
  end
  fault(format("it never rejects: with limit 3 and burst 3 it granted %d requests at one instant; does it read what it has written? (Write times with string.format, since \"..\" rounds them to 14 digits)", AT_ONCE), q, r)
end

-- A state that is as large after ten periods as after five does not grow without end.
local function growth(limiter)
  local now, state, expires, early, late = 1790000000000000, nil, 0, 0, 0
  for step = 1, 500 do
    now = now + floor(policy.period / 50) + below(policy.period / 50)
    if state and now >= expires then state = nil end
    local q = { state = state, now = now, limit = policy.limit, period = policy.period, burst = policy.burst, offset = policy.offset, cost = 1, mode = 0 }
    local r = ask(limiter, q)
    if r[5] ~= nil then state, expires = stored(r[5]), now + (r[8] or r[4]) end
    if step <= 250 then early = math.max(early, #(state or "")) else late = math.max(late, #(state or "")) end
    if late > early * 1.5 + 64 then
      fault(format("new_state must not grow without end: %d bytes after 250 requests, %d after %d", early, late, step), q, r)
    end
  end
end

math.randomseed(20)
local fine, problem = pcall(function()
  local made, limiter = pcall(instance)
  if touched then fault(touched) end
  if not made then fault("it raises an error: " .. text_of(limiter)) end
  if type(limiter) ~= "function" then fault("the file must return a function, but returned " .. (limiter == nil and "nothing" or "a " .. type(limiter))) end
  for _ = 1, SCHEDULES do schedule(limiter) end
  foreign_states(limiter)
  growth(limiter)
  ceiling(limiter)
end)
if fine then return {} end
if type(problem) == "table" and type(problem[1]) == "string" then return problem end
error(problem, 0)
