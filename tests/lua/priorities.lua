-- Random requests of several priorities, by lua/driver.lua in plain Lua with a simulated Redis,
-- against the definition: a request is admitted if the limiter alone admits it and at least
-- `reserve` units remain afterwards. Its wait ends at the first µs at which it is admitted.
--
--   lua5.1 tests/lua/priorities.lua [--steps N]          LUADIR as for model.lua; SEED

local here = arg[0]:match("^(.*)/[^/]*$") or "."
local luadir = os.getenv("LUADIR") or here .. "/../../lua"
local seed = tonumber(os.getenv("SEED")) or os.time()
local steps = arg[1] == "--steps" and tonumber(arg[2]) or 400
local passed = 0
math.randomseed(seed)
local random = math.random

local function text_of(name)
  local file = assert(io.open(luadir .. "/" .. name .. ".lua"))
  local text = file:read("*a")
  file:close()
  return text
end

local muldiv = loadstring(text_of("muldiv"))()
local function limiter(name) return loadstring(text_of(name))(muldiv) end

local compiled = {}

-- Runs one request through the driver. Returns granted, remaining, retry_after, reset, delay, next.
local function decide(name, states, now, call, option, next)
  local script = "local muldiv = ...\nlocal numbers = {}\nlocal limits = { ['1'] = { run = (function(...) " .. text_of(name) ..
                 "\nend)(muldiv), period = " .. ("%.0f"):format(call.period) .. ", amount = 0, burst = 0" ..
                 (option and (", options = { %.0f }"):format(option) or "") .. (next and ", next = true" or "") .. " } }\n" .. text_of("driver")
  local function redis(command, key, value, text)
    if command == "MGET" then return { states[key] or false } end
    if command == "SET" then states[key] = value elseif command == "SETRANGE" then states[key] = text
    elseif command == "DEL" then states[key] = nil else error(command) end
  end
  local args = { now, 1011, 1, 1, call.cost, call.mode, call.limit, call.burst, call.reserve, call.longest }
  for i, value in ipairs(args) do args[i] = ("%.0f"):format(value) end
  local chunk = compiled.text == script and compiled.chunk or assert(loadstring(script))
  compiled.text, compiled.chunk = script, chunk
  setfenv(chunk, setmetatable({ redis = { call = redis }, KEYS = { "k" }, ARGV = args }, { __index = _G }))
  return unpack(chunk(muldiv))
end

local function fail(name, what, call, now, ...)
  print(("FAILED %s, SEED=%d: %s; cost %d mode %d limit %d burst %d period %d reserve %d longest %d at %.0f"):format(
    name, seed, what, call.cost, call.mode, call.limit, call.burst, call.period, call.reserve, call.longest, now), ...)
  os.exit(1)
end

-- How many units the definition grants.
local function expected(run, state, now, call, cost, option)
  local function fits(units)
    local granted, remaining, _, _, after, delay = run(state, now, call.limit, call.period, call.burst, units, 0, nil, option)
    if granted == 0 then return false end
    if not call.queue then return remaining >= call.reserve end
    -- A queue: the delay, and the level of the bucket without the bound on delays.
    local room = call.reserve == 0 or run(after, now, call.limit, call.period, call.burst, call.reserve, 0, nil, 1e13) > 0
    return (delay or 0) <= call.longest and room
  end
  if call.mode == 0 then return fits(cost) and cost or 0 end
  for units = cost, 1, -1 do if fits(units) then return units end end
  return 0
end

-- A request that costs nothing, of a rule with cost 0: if nothing is left for its priority, the time until more units are
-- available is the wait for one unit.
local function check_question(name, state, now, call, option)
  local function ask(cost)
    return decide(name, { k = state }, now, setmetatable({ cost = cost, mode = 0 }, { __index = call }), option, true)
  end
  local granted, _, wait = ask(1)
  local next_unit = select(6, ask(0))
  if granted == 0 and wait >= 0 and next_unit ~= wait then fail(name, ("next of a question: %.0f, not %.0f"):format(next_unit, wait), call, now, state) end
end

local function run_one(name, option_of, queue, next)
  local run, states, now = limiter(name), {}, 1790000000000000 + random(1e6)
  local limit, period = random(1, 12), random(20, 2000) * 100
  local window = name:match("window") or name == "lockout" or name == "concurrency"
  local burst = window and limit or random(1, 15)
  local option = option_of and option_of(period)
  local holder = random(1, 1e6)
  for _ = 1, steps do
    now = now + random(0, 1) * random(0, math.floor(period / limit) * 2)
    local share = ({ 1, 0.8, 0.5, 0.5 })[random(4)]
    local whole = window and limit or burst
    local call = { cost = random(1, 3), mode = random(4) == 1 and 1 or 0, limit = limit, burst = name == "concurrency" and holder or burst,
                   period = period, reserve = whole - math.floor(whole * share), queue = queue, longest = queue and math.max(1, math.floor(option * share)) or 0 }
    local state = states.k
    local most = queue and call.longest or option
    local wanted = expected(run, state, now, call, call.cost, most)
    local granted, _, wait, _, delay, next_unit = decide(name, states, now, call, option, next)
    if granted ~= wanted then fail(name, ("granted %d, not %d"):format(granted, wanted), call, now, state) end
    if granted == 0 then
      local least = call.mode == 1 and 1 or call.cost
      local one = setmetatable({ mode = 0 }, { __index = call })
      if (wait == -1) ~= (least > whole - call.reserve) then fail(name, "never: " .. wait, call, now, state) end
      if states.k ~= state and not (state and run(state, now, limit, period, call.burst, 0, 0, nil, most)) then fail(name, "charged", call, now) end
      if wait >= 0 and name ~= "concurrency" then
        if expected(run, state, now + wait, one, least, most) == 0 then fail(name, "too short a wait: " .. wait, call, now, state) end
        if wait > 0 and expected(run, state, now + wait - 1, one, least, most) > 0 then fail(name, "too long a wait: " .. wait, call, now, state) end
        if next and next_unit > wait and least == 1 then fail(name, "next: " .. next_unit, call, now, state) end
      end
    elseif (delay or 0) > 0 and delay > call.longest then
      fail(name, "delay " .. delay, call, now, state)
    end
    if next then check_question(name, state, now, call, option) end
    passed = passed + 1
  end
end

for _ = 1, 6 do
  for _, name in ipairs { "token_bucket", "gcra", "fixed_window", "sliding_window_counter", "sliding_window_log", "lockout", "concurrency", "leaky_bucket" } do
    run_one(name, nil, false, name:match("^sliding"))
  end
  run_one("rolling_window", function() return random(2, 10) end, false, true)
  run_one("lockout", function(period) return random(1, 3 * period) end)
  run_one("leaky_bucket", function(period) return random(1, 2 * period) end, true)
end
print(("%d passed, 0 failed"):format(passed))
