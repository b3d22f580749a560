-- Limits whose numbers change between requests: a change drops no charges, grants nothing twice,
-- and delays no request for longer than necessary.

local here = arg[0]:match("^(.*)/[^/]*$") or "."
local luadir = os.getenv("LUADIR") or here .. "/../../lua"
local muldiv = dofile(luadir .. "/muldiv.lua")
local steps, seed, only = 20000, os.time() % 1000000, {}
do
  local i = 1
  while arg[i] do
    if arg[i] == "--steps" then steps, i = assert(tonumber(arg[i + 1])), i + 1
    elseif arg[i] == "--seed" then seed, i = assert(tonumber(arg[i + 1])), i + 1
    else only[#only + 1] = arg[i] end
    i = i + 1
  end
end

local START = 1790000000000000
local SECOND, HOUR, DAY = 1000000, 3600000000, 86400000000
local random, min, max, floor, ceil = math.random, math.min, math.max, math.floor, math.ceil
local function below(n) return floor(random() * (n + 1)) end                 -- 0 to n, also if n exceeds the range of an int
local function one_of(list) return list[random(#list)] end

local passed, failed, history = 0, 0, {}
local function check(name, ok, what, ...)
  if ok then passed = passed + 1; return true end
  failed = failed + 1
  if failed <= 5 then
    io.write("FAILED ", name, ": ", what:format(...), "   (--seed ", seed, ")\n")
    for i = max(1, #history - 14), #history do io.write("    ", history[i], "\n") end
  end
  return false
end

-- A limiter with its state, stored as by the driver: deleted up to two SLOTs after its end. A state of
-- sliding_window_counter is deleted at its end, since it contains its period only to one part in 390.
local function client(path)
  local limiter = assert(loadfile(path))(muldiv)
  local c = { state = nil, ends = 0 }
  local stays = path:find("sliding_window_counter") and 0 or 2 * 4194304
  function c.ask(now, d, cost, mode)
    if now >= c.ends + stays then c.state = nil end
    local granted, remaining, retry_after, reset, state, delay, _, lasts =
      limiter(c.state, now, d.limit, d.period, d.burst, cost, mode or 0, d.offset, d.option)
    history[#history + 1] = ("now %.0f limit %d period %.0f burst %d cost %d mode %.0f: state %s -> %.0f %.0f %.0f %.0f %s"):format(
      now - START, d.limit, d.period, d.burst, cost, mode or 0, (tostring(c.state):gsub("[^%w:%-]", "?")), granted, remaining, retry_after, reset,
      (tostring(state):gsub("[^%w:%-]", "?")))
    if state then
      c.ends = now + (lasts or reset)
      c.state = c.ends > now and (type(state) == "number" and ("%.17g"):format(state) or state) or nil
    end
    return granted, remaining, retry_after, reset, delay
  end
  function c.look(now, d)
    return limiter(now < c.ends + stays and c.state or nil, now, d.limit, d.period, d.burst, 0, 0, d.offset, d.option)
  end
  return c
end

-- Models of the definitions, with real numbers. `edit` is called at the first request after a change of the numbers.
--   used(m, now)    units that count now     charge(m, now, units)     edit(m, now, old)    `m.d` holds the numbers

-- A bucket: `level` is what requests see; `all` is what was used and has not leaked, also if the burst was lowered
-- meanwhile.
local bucket = {
  new = function(m) m.level, m.all, m.at = 0, 0, 0 end,
  leak = function(m, now, d)
    local leaked = max(0, now - m.at) * d.limit / d.period
    m.level, m.all, m.at = max(0, m.level - leaked), max(0, m.all - leaked), max(now, m.at)
  end,
  used = function(m) return m.level end,
  charge = function(m, _, units) m.level, m.all = max(0, m.level + units), max(0, m.all + units) end,
  edit = function(m, _, old)
    local owed = max(0, m.level - old.burst)
    m.level = min(m.all - owed, m.d.burst) + owed
  end,
  capacity = function(d) return d.burst end,
  most = function(m, cost) return max(0, m.level + cost - m.d.burst) * m.d.period / m.d.limit end,
}

-- A window that started at `start`.
local function window_start(m, now)
  local d = m.d
  if d.offset then return now - (now - d.offset) % d.period end
  return now >= m.start + d.period and m.start + floor((now - m.start) / d.period) * d.period or m.start
end
local fixed = {
  new = function(m) m.n, m.start = 0, 0 end,
  leak = function(m, now, d)
    if m.n > 0 and now >= m.ends then m.n = 0 end
    if m.n == 0 then m.start = d.offset and now - (now - d.offset) % d.period or now; m.ends = m.start + d.period end
  end,
  used = function(m) return m.n end,
  charge = function(m, _, units) m.n = max(0, m.n + units) end,
  edit = function(m, now)
    m.start = window_start(m, now)
    m.ends = m.start + m.d.period
  end,
  capacity = function(d) return d.limit end,
  most = function(m, _, now) return m.ends - now end,
}

-- A period from its first unit on, or a lockout from the last charge on; `option` is the lockout's length.
local lockout
lockout = {
  new = function(m) m.n, m.first, m.last = 0, 0, 0 end,
  ends = function(m, d) return m.n < d.limit and m.first + d.period or max(m.last + d.option, m.first + d.period) end,
  leak = function(m, now, d) if m.n > 0 and now >= lockout.ends(m, d) then m.n = 0 end end,
  used = function(m) return m.n end,
  charge = function(m, now, units)
    if m.n == 0 then m.first = now end
    m.n, m.last = max(0, m.n + units), units > 0 and now or m.last
  end,
  edit = function(m, now) lockout.leak(m, now, m.d) end,
  capacity = function(d) return d.limit end,
  most = function(m, _, now) return lockout.ends(m, m.d) - now end,
  exact = true,
}

-- Two windows: units that count (c, p) and, after a limit was lowered, units that do not (hc, hp). `debt`: a charge into debt still counts.
local weighted
weighted = {
  new = function(m) m.c, m.p, m.hc, m.hp, m.start, m.debt = 0, 0, 0, 0, 0, false end,
  leak = function(m, now, d)
    if now - m.start >= 2 * d.period then m.c, m.p, m.hc, m.hp = 0, 0, 0, 0
    elseif now - m.start >= d.period then m.c, m.p, m.hc, m.hp, m.start = 0, m.c, 0, m.hc, m.start + d.period end
    if m.c + m.p + m.hc + m.hp == 0 then
      m.start, m.debt = d.offset and now - (now - d.offset) % d.period or now, false
    end
  end,
  left = function(m, now, d) return (d.period - (now - m.start)) / d.period end,
  used = function(m, now) return m.c + m.p * weighted.left(m, now, m.d) end,
  charge = function(m, now, units, mode)
    if units < 0 then
      local newer = min(m.c, -units)
      if newer + m.p == 0 then return end
      m.c, m.p = m.c - newer, max(0, m.p + units + newer)
    else
      m.c = m.c + units
    end
    weighted.wrote(m, now, mode == 2)
  end,
  -- The state is rewritten: a debt ends when the counted units are within the limit.
  wrote = function(m, now, debt)
    m.debt = (m.debt or debt) and max(weighted.used(m, now), m.c, m.p) > m.d.limit + 1e-9
    m.counted, m.charged = m.c + m.p, m.c + m.p + m.hc + m.hp
  end,
  edit = function(m, now, old, c)
    local d = m.d
    if m.c + m.p + m.hc + m.hp == 0 then return weighted.leak(m, now, d) end
    if d.period ~= old.period then
      -- The converted counts are taken from the limiter and compared with the definition. With an offset the limiter
      -- knows the time of the last charge, not the start of its window: at most as many units count as at that time.
      local left, units = weighted.left(m, now, old), m.c + m.p + m.hc + m.hp
      local counting, all = m.c + m.p * left, m.c + m.hc + (m.p + m.hp) * left
      local most, most_of_all = d.offset and m.counted or counting, d.offset and m.charged or all
      local state = select(5, c.look(now, { limit = old.limit, period = d.period, burst = old.limit, offset = d.offset }))
      local s, current = (state or "0:0:0"):match("^(%d+):(%d+)")
      m.c, m.hc, m.p, m.hp = tonumber(current:sub(-13)), #current > 39 and tonumber(current:sub(-26, -14)) or 0, 0, 0
      check("sliding_window_counter", m.c >= (m.debt and counting or min(counting, old.limit)) - 1e-6 and m.c <= most + 0.006 * units + 1,
            "%.6f count, and %d after the edit", counting, m.c)
      check("sliding_window_counter", m.c + m.hc >= all - 1e-6 and m.c + m.hc <= most_of_all + 0.006 * units + 1,
            "%.6f with hidden ones, and %d after the edit", all, m.c + m.hc)
      m.start = d.offset and now - (now - d.offset) % d.period or s + 0
      check("sliding_window_counter", m.start <= now and m.start > now - d.period, "the window starts at %.0f", m.start - now)
    end
    -- Of each window as many units as the limit, or as many as make the weighted count equal to the limit. Of a debt,
    -- all units that counted.
    local hides = m.hc + m.hp > 0
    if hides and d.limit ~= old.limit or not m.debt and (m.c > d.limit or not hides and m.p > d.limit) then
      local c, p = min(m.c + m.hc, d.limit), m.p + m.hp
      p = min(p, max(d.limit, floor((d.limit - c) / weighted.left(m, now, d) + 1e-9)))
      if m.debt then c, p = max(c, m.c), max(p, m.p) end
      m.hc, m.hp, m.c, m.p = m.c + m.hc - c, m.p + m.hp - p, c, p
    elseif d.period == old.period then
      return
    end
    weighted.wrote(m, now)
  end,
  capacity = function(d) return d.limit end,
  -- Until the weight of the previous window is low enough; if the current window is too full, in the next window.
  -- Without a debt, never longer than for a client that has used the whole limit in this window.
  most = function(m, cost, now)
    local d, most = m.d, nil
    if m.c + cost <= d.limit then
      most = m.start + d.period - (d.limit - m.c - cost) * d.period / m.p
    else
      most = m.start + d.period + max(0, d.period - (d.limit - cost) * d.period / m.c)
    end
    if not m.debt then most = min(most, m.start + d.period + cost * d.period / d.limit) end
    return most - now
  end,
  exact = true,
}

-- The time of each unit, as long as it counts by the current numbers; units older than the key's expiry are deleted.
local log = {
  new = function(m) m.times = {} end,
  leak = function(m, now, d)
    while m.times[1] and m.times[1] <= now - d.period do table.remove(m.times, 1) end
  end,
  used = function(m) return #m.times end,
  charge = function(m, now, units) for _ = 1, units do m.times[#m.times + 1] = now end end,
  edit = function(m, now) while m.times[1] and m.times[1] <= now - m.d.period do table.remove(m.times, 1) end end,
  capacity = function(d) return d.limit end,
  most = function(m, cost) return m.d.period end,
}

local models = { gcra = bucket, leaky_bucket = bucket, token_bucket = bucket, fixed_window = fixed, sliding_window_counter = weighted,
                 sliding_window_log = log, rolling_window = log, lockout = lockout }
local names = { "gcra", "leaky_bucket", "token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log", "rolling_window", "lockout" }

local function definition(name, before)
  local d = {}
  if before then for key, value in pairs(before) do d[key] = value end end
  local what = before and random(7) or 7
  if what % 2 == 1 then d.limit = one_of { 1, 2, 5, 10, 60, 100 } end
  if what % 4 > 1 then d.period = one_of { 1000, 7777, 60000, SECOND, 7 * SECOND, 60 * SECOND, HOUR, DAY } end
  if what > 3 then d.burst = one_of { 1, 3, 10, 100, d.limit } end
  if name:find("window") then d.burst = d.limit end
  if name == "rolling_window" then d.option = 10 end
  if name == "lockout" then d.option = one_of { 1000, 60000, SECOND, HOUR, DAY, before and before.option or SECOND } end
  return d
end

-- One client whose limit changes from time to time.
local function schedule(name, length)
  local model, m, c = models[name], {}, client(luadir .. "/" .. name .. ".lua")
  history = {}
  m.d = definition(name)
  if (name == "fixed_window" or name == "sliding_window_counter") and random(2) == 1 then m.d.offset = random(0, 5000) end
  model.new(m)
  local now, promised, seen, drift = START + random(0, 9999999), nil, m.d, 0
  for _ = 1, length do
    local leap = random(10)
    if promised and leap <= 3 then now = max(now, promised)
    elseif leap <= 6 then now = now + below(ceil(m.d.period / m.d.limit))
    elseif leap == 7 then now = now + below(ceil(m.d.period / 3)) end
    if random(4) == 1 then m.d, promised = definition(name, m.d), nil end
    local d, cost, mode = m.d, one_of { 1, 1, 1, 2, 3, m.d.burst }, one_of { 0, 0, 0, 1 }
    if name:find("bucket") or name == "gcra" or name == "sliding_window_counter" or name == "lockout" then
      if random(12) == 1 then mode = 2 elseif random(12) == 1 then cost, mode = -1, 0 end
    end
    model.leak(m, now, seen, c)
    if d ~= seen then
      if d.limit ~= seen.limit or d.period ~= seen.period or d.burst ~= seen.burst or d.option ~= seen.option then
        -- Each conversion of a level to other numbers rounds it up: by 2 µs, and by the fraction of a token that has
        -- arrived in the part that is cut off.
        drift = model.exact and 0 or drift + 4 * seen.limit / seen.period + 4 * d.limit / d.period + (name == "token_bucket" and 1 or 0)
        model.edit(m, now, seen, c)
      end
      seen = d
    end
    -- When the visible bucket is full, the fraction of a token that has arrived in the part that is cut off is lost.
    if name == "token_bucket" and m.level == 0 and m.all > 0 then drift = drift + 1 end
    if now >= c.ends then drift = 0 end
    local used, capacity = model.used(m, now), model.capacity(d)
    local granted, _, retry_after = c.ask(now, d, cost, mode)
    if mode ~= 2 and granted > 0 then
      if not check(name, used + granted <= capacity + 1e-6, "granted %d of %d with %.6f used", granted, capacity, used) then return end
    end
    if granted == 0 and retry_after > 0 then
      local most = model.most(m, mode == 1 and 1 or cost, now) + drift * d.period / d.limit + 2
      if name == "rolling_window" then most = d.period + 1 end
      if not check(name, retry_after <= most, "a wait of %.0f; %.0f is enough", retry_after, most) then return end
      local again = client(luadir .. "/" .. name .. ".lua")
      again.state, again.ends = c.state, c.ends
      local then_granted = again.ask(now + retry_after, d, mode == 1 and 1 or cost, 0)
      history[#history] = nil
      if not check(name, then_granted > 0, "not admitted after the wait of %.0f", retry_after) then return end
      promised = now + retry_after
    elseif granted == 0 then
      check(name, (mode == 1 and 1 or cost) > capacity, "never, for %d of %d", cost, capacity)
    end
    if granted ~= 0 then model.charge(m, now, granted, mode) end
    history[#history] = history[#history] .. (" (used %.6f, then %.6f, drift %.6f)"):format(used, model.used(m, now), drift)
  end
end

-- Clients of two plans use a shared key alternately: the charges of each count for the other.
local function plans(name)
  local model, m, c = models[name], {}, client(luadir .. "/" .. name .. ".lua")
  history = {}
  local period = one_of { 60000, SECOND, HOUR }
  local gold = { limit = random(50, 100), period = period }
  local normal = { limit = random(1, 20), period = period, option = 10 }
  gold.burst, normal.burst, gold.option = gold.limit, normal.limit, 10
  if not name:find("rolling") then gold.option, normal.option = nil, nil end
  local now, sum = START, 0
  for _ = 1, 200 do
    now = now + below(floor(period / 2000))
    sum = sum + c.ask(now, gold, 1) + c.ask(now, normal, 1)
  end
  local bound = gold.burst + (now - START) / period * gold.limit
  check(name, sum <= bound + 1, "%d admitted; the larger limit permits at most %.1f", sum, bound)
end

-- leaky_bucket as a queue: a waiting request keeps its assigned time, no two requests get the same time, and the
-- rejections end.
local function queue()
  local c, name = client(luadir .. "/leaky_bucket.lua"), "leaky_bucket"
  history = {}
  local d = { limit = one_of { 1, 2, 5, 10 }, period = one_of { SECOND, 60 * SECOND }, burst = one_of { 5, 20 }, option = one_of { SECOND, 100 * SECOND } }
  local now, free_from = START, START
  for _ = 1, 60 do
    now = now + below(floor(d.period / d.limit))
    if random(5) == 1 then
      d = { limit = one_of { 1, 2, 5, 10 }, period = one_of { SECOND, 60 * SECOND, HOUR }, burst = one_of { 1, 5, 20 }, option = d.option }
    end
    local granted, _, retry_after, _, delay = c.ask(now, d, 1)
    if granted > 0 then
      if not check(name, now + delay >= free_from - 1, "forwarded %.0f µs too early", free_from - now - delay) then return end
      free_from = now + delay + d.period / d.limit
    else
      local again = client(luadir .. "/leaky_bucket.lua")
      again.state, again.ends = c.state, c.ends
      check(name, retry_after > 0 and again.ask(now + retry_after, d, 0) == 1, "not admitted after the wait of %.0f", retry_after)
      history[#history] = nil
    end
  end
end

-- The examples of a bug report, by limiter.
local function numbers(limit, period, burst) return { limit = limit, period = period, burst = burst or limit } end

local function used_up_and_tightened(name)
  local c, d = client(luadir .. "/" .. name .. ".lua"), numbers(1000, HOUR)
  history = {}
  check(name, c.ask(START, d, 1000) == 1000, "used up")
  local at_once = c.ask(START + SECOND, numbers(1000, DAY), 1000, 1)
  check(name, at_once == 0, "1000/h used up, lowered to 1000/d: %d more at once", at_once)
  local sum = 0
  for minute = 1, 23 * 60 do
    sum = sum + c.ask(START + minute * 60 * SECOND, numbers(1000, DAY), 1000, 1)
  end
  check(name, sum <= 1000 * 23 / 24 + 1, "%d more within 23 hours", sum)
end

local function used_up_and_loosened(name)
  local c = client(luadir .. "/" .. name .. ".lua")
  history = {}
  check(name, c.ask(START, numbers(1000, DAY), 1000) == 1000, "used up")
  local granted, _, retry_after = c.ask(START + 10 * SECOND, numbers(1000, HOUR), 1)
  local is_bucket = models[name] == bucket
  check(name, granted == 0 and retry_after <= (is_bucket and 3.6 * SECOND or name == "sliding_window_counter" and HOUR + 3.6 * SECOND or HOUR),
        "1000/d used up, raised to 1000/h: Retry-After %.0f s", retry_after / SECOND)
  local next_granted, wait = granted, retry_after
  if next_granted == 0 then next_granted = c.ask(START + 10 * SECOND + wait, numbers(1000, HOUR), 1) end
  check(name, next_granted == 1, "admitted after that")
end

local function burst_lowered(name)
  local c = client(luadir .. "/" .. name .. ".lua")
  history = {}
  check(name, c.ask(START, numbers(10, 60 * SECOND, 100), 100) == 100, "used up")
  local granted, _, retry_after = c.ask(START, numbers(10, 60 * SECOND, 10), 1)
  check(name, granted == 0 and retry_after <= 6 * SECOND + 2, "burst 100 used up, lowered to 10: rejected for %.0f s", retry_after / SECOND)
  check(name, c.ask(START + retry_after, numbers(10, 60 * SECOND, 10), 1) == 1, "admitted after that")
  local at_once = c.ask(START + retry_after, numbers(10, 60 * SECOND, 100), 100, 1)
  check(name, at_once <= 1, "and raised to 100 again: %d at once", at_once)
end

-- The hidden units take 274 years to leak at the new rate.
local function hidden_for_centuries(name)
  for micros = 0, 3 do
    local c, now, day = client(luadir .. "/" .. name .. ".lua"), START + micros, numbers(10, DAY)
    history = {}
    check(name, c.ask(now, numbers(1000000, HOUR), 1000000) == 1000000, "used up")
    local sum = 0
    for minute = 1, 3 * 24 * 60 do
      local granted, remaining = c.ask(now + minute * 60 * SECOND, day, 1)
      sum = sum + granted
      if not check(name, remaining <= 1, "%d left after %d minutes", remaining, minute) then return end
    end
    check(name, sum == 29, "1000000/h used up, lowered to 10/d: %d more in 3 days, 29 are due", sum)
  end
end

local function part_of_a_token()
  local c, name = client(luadir .. "/token_bucket.lua"), "token_bucket"
  history = {}
  check(name, c.ask(START, numbers(1, DAY, 10), 10) == 10, "used up")
  local granted, _, retry_after = c.ask(START + DAY / 2, numbers(1, HOUR, 10), 1)
  check(name, granted == 0 and math.abs(retry_after - HOUR / 2) <= 2, "half a token of 1/d is half a token of 1/h: %d granted, retry_after %.0f s", granted,
        retry_after / SECOND)
end

local function a_shorter_period_keeps_fresh_use()
  for _, name in ipairs { "sliding_window_counter", "fixed_window", "sliding_window_log", "rolling_window" } do
    local c = client(luadir .. "/" .. name .. ".lua")
    history = {}
    local long, short = numbers(100, HOUR), numbers(100, 60 * SECOND)
    long.option, short.option = name == "rolling_window" and 10 or nil, name == "rolling_window" and 10 or nil
    c.ask(START, long, 1)
    check(name, c.ask(START + 30 * 60 * SECOND, long, 99) == 99, "used up")
    local granted = c.ask(START + 30 * 60 * SECOND + SECOND, short, 100, 1)
    check(name, granted <= 1, "1 h shortened to 1 min a second after 99 of 100 were used: %d at once", granted)
  end
end

local function limit_lowered()
  local c, name = client(luadir .. "/sliding_window_counter.lua"), "sliding_window_counter"
  history = {}
  check(name, c.ask(START, numbers(1000, HOUR), 1000) == 1000, "used up")
  local granted, _, retry_after = c.ask(START + SECOND, numbers(10, HOUR), 1)
  check(name, granted == 0 and retry_after == 3959 * SECOND, "1000/h used up, lowered to 10/h: rejected for %.0f s", retry_after / SECOND)
  local raised = c.ask(START + 2 * SECOND, numbers(1000, HOUR), 1000, 1)
  check(name, raised == 0, "and raised to 1000 again: %d at once", raised)
  c = client(luadir .. "/sliding_window_counter.lua")
  c.ask(START, numbers(100, HOUR), 150, 2)
  granted, _, retry_after = c.ask(START, numbers(50, HOUR), 1)
  check(name, granted == 0 and retry_after == HOUR + HOUR * 101 / 150, "150 charged, more than the limit: rejected for %.0f s by a lower limit", retry_after / SECOND)
end

local function period_raised_after_the_window()
  local c, name = client(luadir .. "/fixed_window.lua"), "fixed_window"
  history = {}
  check(name, c.ask(START, numbers(10, SECOND), 10) == 10, "used up")
  local granted, _, retry_after = c.ask(START + SECOND, numbers(10, DAY), 10)
  check(name, granted == 10, "10/s used up, changed to 10/d when the second is over: rejected for %.0f s", retry_after / SECOND)
end

math.randomseed(seed)
for _, name in ipairs(#only > 0 and only or names) do
  local left = steps
  while left > 0 and failed < 20 do
    local length = min(left, random(5, 60))
    schedule(name, length)
    left = left - length
  end
  if name ~= "lockout" then for _ = 1, max(50, steps / 400) do plans(name) end end
  if name == "leaky_bucket" then for _ = 1, max(100, steps / 40) do queue() end end
  if name ~= "rolling_window" and name ~= "lockout" then
    used_up_and_loosened(name)
    used_up_and_tightened(name)
  end
  if models[name] == bucket then
    burst_lowered(name)
    hidden_for_centuries(name)
  end
  if name == "token_bucket" then part_of_a_token() end
  if name == "fixed_window" then period_raised_after_the_window() end
  if name == "sliding_window_counter" then limit_lowered() end
end
if #only == 0 then a_shorter_period_keeps_fresh_use() end
print(("seed %d"):format(seed))
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
