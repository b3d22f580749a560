-- Different versions on one Redis: the current limiters and those of tests/lua/format-1 (whose
-- states have no version) use the same states alternately. Each request has the same result as with
-- one version alone.

local here = arg[0]:match("^(.*)/[^/]*$") or "."
local luadir = os.getenv("LUADIR") or here .. "/../../lua"
local muldiv = dofile(luadir .. "/muldiv.lua")
local steps, seed, record = 20000, os.time() % 1000000, false
do
  local i = 1
  while arg[i] do
    if arg[i] == "--steps" then steps, i = assert(tonumber(arg[i + 1])), i + 1
    elseif arg[i] == "--seed" then seed, i = assert(tonumber(arg[i + 1])), i + 1
    elseif arg[i] == "--record" then record, seed = true, 20 end
    i = i + 1
  end
end

local random, floor, max = math.random, math.floor, math.max
local function one_of(list) return list[random(#list)] end
local function below(n) return floor(random() * (n + 1)) end
local START = 1790000000000000
local names = { "gcra", "leaky_bucket", "token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log", "rolling_window", "concurrency" }

local passed, failed, history = 0, 0, {}
local function check(ok, what, ...)
  if ok then passed = passed + 1; return true end
  failed = failed + 1
  if failed <= 5 then
    io.write("FAILED ", what:format(...), "   (--seed ", seed, ")\n")
    for i = max(1, #history - 8), #history do io.write("    ", history[i], "\n") end
  end
  return false
end

-- In format-1, each limiter file contains muldiv and takes no arguments.
local function load_limiter(directory, name) return assert(loadfile(directory .. "/" .. name .. ".lua"))(directory == luadir and muldiv or nil) end

local function definition(name)
  local d = { limit = one_of { 1, 3, 7, 100 }, period = one_of { 1000, 7777, 1000000, 3600000000 } }
  d.burst = one_of { d.limit, 2 * d.limit, 10 }
  if name:find("window") then d.burst = d.limit end
  if name:find("window$") or name == "sliding_window_counter" then d.offset = one_of { false, 17 } or nil end
  if name == "rolling_window" then d.option, d.offset = 10, nil end
  if name == "leaky_bucket" then d.option = one_of { false, floor(d.period / 2) } or nil end
  return d
end

-- A state, stored as in Redis until its expiry.
local function key() return { state = nil, ends = 0 } end
local function ask(k, limiter, now, d, cost, mode)
  if now >= k.ends then k.state = nil end
  local granted, remaining, retry_after, reset, state, delay, _, lasts =
    limiter(k.state, now, d.limit, d.period, d.holder or d.burst, cost, mode, d.offset, d.option)
  if state then
    k.ends = now + (lasts or reset)
    k.state = k.ends > now and (type(state) == "number" and ("%.17g"):format(state) or state) or nil
  end
  return ("%.0f %.0f %.0f %.0f %s"):format(granted, remaining, retry_after, reset, tostring(delay)), granted
end

local function take_turns(name)
  local old, new = load_limiter(here .. "/format-1", name), load_limiter(luadir, name)
  local d, now, mixed, alone, charges = definition(name), START + below(9999999), key(), key(), {}
  history = { name }
  for _ = 1, 60 do
    now = now + one_of { 0, 0, 1, below(d.period / d.limit), below(d.period / d.limit), below(d.period) }
    local cost, mode, who = one_of { 1, 1, 1, 2, d.burst, 0, -1 }, one_of { 0, 0, 0, 1, 2 }, random(2)
    if cost < 0 then mode = #charges > 0 and one_of { charges[random(#charges)], 0 } or 0 end
    if name == "concurrency" then d.holder, mode = random(3), cost < 0 and 0 or one_of { 0, 0, 1, 3 } end
    local got, granted = ask(mixed, who == 1 and old or new, now, d, cost, mode)
    local expected = ask(alone, old, now, d, cost, mode)
    history[#history + 1] = ("now %.0f %s cost %d mode %.0f of %d/%.0f burst %d: %s (%s): %s"):format(now - START, who == 1 and "old" or "new", cost, mode,
      d.limit, d.period, d.burst, got, expected, (tostring(mixed.state):gsub("[^%w:%-]", "?")))
    if granted > 0 and cost > 0 then charges[#charges + 1] = now end
    if not check(got == expected, "%s: %s alternating, %s alone", name, got, expected) then return end
  end
end

local function hex(text) return (text:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end
local function from_hex(text) return (text:gsub("..", function(c) return string.char(tonumber(c, 16)) end)) end

local function record_states()
  for _, name in ipairs(names) do
    local old = load_limiter(here .. "/format-1", name)
    for _ = 1, 30 do
      local d, now, k = definition(name), START + below(9999999), key()
      d.holder = name == "concurrency" and 77 or nil
      for _ = 1, random(12) do
        now = now + below(d.period / d.limit)
        ask(k, old, now, d, one_of { 1, 1, 2 }, name == "concurrency" and 0 or one_of { 0, 0, 2 })
      end
      now = now + below(d.period / d.limit)
      if k.state and now < k.ends then
        local copy = { state = k.state, ends = k.ends }
        print(("%s %d %.0f %d %s %s %s %.0f : %s : %s"):format(name, d.limit, d.period, d.holder or d.burst, d.offset or "-", d.option or "-", hex(k.state), now,
          (ask(copy, old, now, d, 0, 0)), (ask(copy, old, now, d, 1, 0))))
      end
    end
  end
end

local function read_recorded()
  local lines = 0
  for line in io.lines(here .. "/format-1/states.txt") do
    local name, limit, period, burst, offset, option, state, now, look, charge =
      line:match("^(%S+) (%d+) (%d+) (%d+) (%S+) (%S+) (%x+) (%d+) : (.-) : (.-)$")
    local d = { limit = limit + 0, period = period + 0, burst = burst + 0, offset = tonumber(offset), option = tonumber(option) }
    local k, limiter = { state = from_hex(state), ends = math.huge }, load_limiter(luadir, name)
    history = { line }
    local got = ask(k, limiter, now + 0, d, 0, 0)
    check(got == look, "%s: the query returned %s", name, got)
    got = ask(k, limiter, now + 0, d, 1, 0)
    check(got == charge, "%s: the request returned %s", name, got)
    lines = lines + 1
  end
  check(lines > 100, "%d recorded states", lines)
end

-- format-1 cannot store units that a lowered limit hides: there they count until two periods have passed.
local function hidden_units()
  local old, new = load_limiter(here .. "/format-1", "sliding_window_counter"), load_limiter(luadir, "sliding_window_counter")
  local high, low, k = { limit = 100, period = 1000000, burst = 100 }, { limit = 10, period = 1000000, burst = 10 }, key()
  history = {}
  ask(k, new, START, high, 100, 0)
  ask(k, new, START, low, 1, 0)
  for later = 0, 1900000, 100000 do
    local _, granted = ask(k, old, START + later, low, 1, 0)
    check(granted == 0, "hidden units: %d admitted after %d", granted, later)
    check(select(2, ask(k, new, START + later, low, 0, 0)) == (later > 1000000 and 1 or 0), "hidden units: counted after %d", later)
  end
  for _, change in ipairs { { 5, 2 }, { -1, 0 } } do
    k = key()
    ask(k, new, START, high, 100, 0)
    ask(k, new, START, low, 1, 0)
    ask(k, old, START, low, change[1], change[2])
    check(select(2, ask(k, new, START, low, 1, 0)) == 0, "hidden units: not charged by the earlier version")
    check(select(2, ask(k, new, START + 1100000, low, 1, 0)) == 1, "hidden units: kept for one period and the time that the limit needs")
  end
end

math.randomseed(seed)
if record then record_states() os.exit(0) end
for _, name in ipairs(names) do
  for _ = 1, max(50, steps / 60) do take_turns(name) end
end
read_recorded()
hidden_units()
print(("seed %d"):format(seed))
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
