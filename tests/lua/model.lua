-- Compares the limiters with models written from their definitions, on random schedules with
-- simulated time.

local here = arg[0]:match("^(.*)/[^/]*$") or "."
local luadir = os.getenv("LUADIR") or here .. "/../../lua"
local muldiv = dofile(luadir .. "/muldiv.lua")
local steps, seed, only = 4000, os.time() % 1000000, {}
do
  local i = 1
  while arg[i] do
    if arg[i] == "--steps" then steps, i = assert(tonumber(arg[i + 1])), i + 1
    elseif arg[i] == "--seed" then seed, i = assert(tonumber(arg[i + 1])), i + 1
    else only[#only + 1] = arg[i] end
    i = i + 1
  end
end

local random = math.random
local START = 1790000000000000
local function one_of(list) return list[random(#list)] end

-- Models. Each implements the definition with small integers, so that every product is exact; none uses a formula of
-- its limiter.
--   can(m, now, units)     whether `units` units are admitted now     charge(m, now, units)
--   give_back(m, now, units, time)    refunds units charged at that time; nil: the newest
--   fresh(m, now)          equals the initial state                   capacity(m)
-- `m` holds limit, period, burst, offset, option.

local models = {}

-- Credit in tokens * period; it grows by limit per µs up to the burst.
models.token_bucket = {
  new = function(m) m.credit, m.at = m.burst * m.period, 0 end,
  capacity = function(m) return m.burst end,
  level = function(m, now) return math.min(m.burst * m.period, m.credit + (now - m.at) * m.limit) end,
  settle = function(m, now) if now > m.at then m.credit, m.at = models.token_bucket.level(m, now), now end end,
  can = function(m, now, units)
    if now < m.at then                                                       -- whole tokens remain, fractions are dropped
      return math.floor(m.credit / m.period) >= units
    end
    return models.token_bucket.level(m, now) >= units * m.period
  end,
  charge = function(m, now, units) models.token_bucket.settle(m, now); m.credit = m.credit - units * m.period end,
  give_back = function(m, now, units)
    models.token_bucket.settle(m, now)
    m.credit = math.min(m.burst * m.period, m.credit + units * m.period)
  end,
  fresh = function(m, now) return models.token_bucket.level(m, now) >= m.burst * m.period end,
}

-- I.371's virtual scheduling, cell by cell, in µs * limit: a cell conforms if TAT - (burst - 1) * T <= now.
models.gcra = {
  new = function(m) m.tat = 0 end,
  capacity = function(m) return m.burst end,
  can = function(m, now, units)
    local tat = m.tat
    for _ = 1, units do
      if tat - (m.burst - 1) * m.period > now * m.limit then return false end
      tat = math.max(tat, now * m.limit) + m.period
    end
    return true
  end,
  charge = function(m, now, units) m.tat = math.max(m.tat, now * m.limit) + units * m.period end,
  give_back = function(m, now, units)
    if m.tat > now * m.limit then m.tat = math.max(m.tat - units * m.period, now * m.limit) end
  end,
  fresh = function(m, now) return m.tat <= now * m.limit end,
}

-- Content in units * period, which leaks limit per µs; option: max_delay.
models.leaky_bucket = {
  new = function(m) m.content, m.at = 0, 0 end,
  capacity = function(m) return m.burst end,
  level = function(m, now) return math.max(0, m.content - (now - m.at) * m.limit) end,
  wait = function(m, now) return math.ceil(models.leaky_bucket.level(m, now) / m.limit) end,
  can = function(m, now, units)
    local level = models.leaky_bucket.level(m, now)
    if m.option and m.option > 0 and level > m.option * m.limit then return false end
    return level + units * m.period <= m.burst * m.period
  end,
  charge = function(m, now, units) m.content, m.at = models.leaky_bucket.level(m, now) + units * m.period, now end,
  give_back = function(m, now, units)
    if m.option and m.option > 0 then return end            -- a queue needs to know which place: see queue() below
    m.content, m.at = math.max(0, models.leaky_bucket.level(m, now) - units * m.period), now
  end,
  fresh = function(m, now) return models.leaky_bucket.level(m, now) == 0 end,
}

-- The start of the window that contains a time, found by stepping from a known one.
local function window(m, now)
  local start = m.anchor
  if start == nil then return nil end
  while now >= start + m.period do start = start + m.period end
  while now < start do start = start - m.period end
  return start
end

models.fixed_window = {
  new = function(m) m.charged, m.ends = 0, -1 end,
  capacity = function(m) return m.limit end,
  used = function(m, now) return now < m.ends and m.charged or 0 end,
  can = function(m, now, units) return models.fixed_window.used(m, now) + units <= m.limit end,
  charge = function(m, now, units)
    if now >= m.ends or m.charged == 0 then
      m.charged, m.ends = 0, now + m.period
      if m.offset then m.ends = window(m, now) + m.period end
    end
    m.charged = m.charged + units
  end,
  give_back = function(m, now, units, time)
    if now < m.ends and (not time or time >= m.ends - m.period) then m.charged = math.max(0, m.charged - units) end
  end,
  fresh = function(m, now) return models.fixed_window.used(m, now) == 0 end,
}

-- A period from its first unit on; once all units are used, a lockout from the last charge on; option: its length.
models.lockout = {
  new = function(m) m.charged = 0 end,
  capacity = function(m) return m.limit end,
  ends = function(m) return m.charged < m.limit and m.first + m.period or math.max(m.last + m.option, m.first + m.period) end,
  used = function(m, now) return m.charged > 0 and now < models.lockout.ends(m) and m.charged or 0 end,
  can = function(m, now, units) return models.lockout.used(m, now) + units <= m.limit end,
  charge = function(m, now, units)
    if models.lockout.used(m, now) == 0 then m.charged, m.first, m.last = 0, now, now end
    m.charged, m.last = m.charged + units, math.max(m.last, now)
  end,
  give_back = function(m, now, units, time)
    if models.lockout.used(m, now) > 0 and (not time or time >= m.first) then m.charged = math.max(0, m.charged - units) end
  end,
  fresh = function(m, now) return models.lockout.used(m, now) == 0 end,
}

-- The count of each window, by its start; windows are dropped after two windows without a charge.
models.sliding_window_counter = {
  new = function(m) m.counts = {} end,
  capacity = function(m) return m.limit end,
  both = function(m, now)
    local start = window(m, now)
    if not start then return now, 0, 0 end
    return start, m.counts[start] or 0, m.counts[start - m.period] or 0
  end,
  can = function(m, now, units)
    local start, current, previous = models.sliding_window_counter.both(m, now)
    return (current + units) * m.period + previous * (m.period - (now - start)) <= m.limit * m.period
  end,
  charge = function(m, now, units)
    if not m.offset and models.sliding_window_counter.fresh(m, now) then m.counts, m.anchor = {}, now end
    local start = window(m, now)
    m.counts[start] = (m.counts[start] or 0) + units
  end,
  give_back = function(m, now, units, time)
    local start, current, previous = models.sliding_window_counter.both(m, now)
    if time then
      for _, s in ipairs { start, start - m.period } do
        if time >= s and time < s + m.period then m.counts[s] = math.max(0, (m.counts[s] or 0) - units) end
      end
      return
    end
    local first = math.min(current, units)
    m.counts[start], m.counts[start - m.period] = current - first, math.max(0, previous - (units - first))
  end,
  fresh = function(m, now)
    local _, current, previous = models.sliding_window_counter.both(m, now)
    return current == 0 and previous == 0
  end,
}

-- The time of each unit, newest last.
models.sliding_window_log = {
  new = function(m) m.times = {} end,
  capacity = function(m) return m.limit end,
  used = function(m, now)
    local n = 0
    for i = #m.times, 1, -1 do
      if m.times[i] <= now - m.period then break end
      n = n + 1
    end
    return n
  end,
  can = function(m, now, units) return models.sliding_window_log.used(m, now) + units <= m.limit end,
  charge = function(m, now, units) for _ = 1, units do m.times[#m.times + 1] = now end end,
  give_back = function(m, now, units, time)
    if time then
      for i = #m.times, 1, -1 do
        if units > 0 and m.times[i] == time and time > now - m.period then table.remove(m.times, i); units = units - 1 end
      end
      return
    end
    for _ = 1, units do
      local newest = m.times[#m.times]
      if newest and newest > now - m.period then m.times[#m.times] = nil end
    end
  end,
  fresh = function(m, now) return models.sliding_window_log.used(m, now) == 0 end,
}

-- The same, but each unit counts until one period after the newest unit of its bucket; option: number of buckets.
models.rolling_window = {
  new = function(m) m.buckets = {} end,
  capacity = function(m) return m.limit end,
  used = function(m, now)
    local n = 0
    for _, bucket in ipairs(m.buckets) do if bucket.newest > now - m.period then n = n + bucket.units end end
    return n
  end,
  can = function(m, now, units) return models.rolling_window.used(m, now) + units <= m.limit end,
  charge = function(m, now, units)
    local bucket = m.buckets[#m.buckets]
    local takes = bucket and bucket.newest > now - m.period
                  and (now == bucket.newest or bucket.opened and (now - bucket.opened) * m.option < m.period)
    if not takes then
      bucket = { opened = now, units = 0, took = {} }
      m.buckets[#m.buckets + 1] = bucket
    end
    bucket.newest, bucket.units, bucket.took[now] = now, bucket.units + units, true
  end,
  give_back = function(m, now, units, time)
    if time then
      for i, bucket in ipairs(m.buckets) do
        if bucket.took[time] and time > now - m.period then
          bucket.units = bucket.units - math.min(units, bucket.units)
          if bucket.units == 0 then
            table.remove(m.buckets, i)
            if i > 1 and i == #m.buckets + 1 then m.buckets[i - 1].opened = nil end
          end
          return
        end
      end
      return
    end
    while units > 0 do
      local bucket = m.buckets[#m.buckets]
      if not bucket or bucket.newest <= now - m.period then return end
      local part = math.min(units, bucket.units)
      bucket.units, units = bucket.units - part, units - part
      if bucket.units == 0 then
        m.buckets[#m.buckets] = nil
        if m.buckets[#m.buckets] then m.buckets[#m.buckets].opened = nil end      -- the bucket is closed
      end
    end
  end,
  fresh = function(m, now) return models.rolling_window.used(m, now) == 0 end,
}

-- Compares a limiter with its model.

local passed, failed = 0, 0
local history

local function fail(name, what, ...)
  failed = failed + 1
  if failed > 5 then return end
  io.write("FAILED ", name, ": ", what:format(...), "   (--seed ", seed, ")\n")
  for i = math.max(1, #history - 12), #history do io.write("    ", history[i], "\n") end
end

local function check(name, ok, what, ...)
  if ok then passed = passed + 1 else fail(name, what, ...) end
  return ok
end

local function show(state)
  return state == nil and "nil" or (tostring(state):gsub("[^%w:%-]", function(c) return ("\\%d"):format(c:byte()) end))
end

-- Runs a limiter as the driver does: its state is passed as text. If it returns the time until which a state is
-- needed, that time holds for any later numbers, because the state's key may expire then.
local written, writings = {}, 0
local function load_limiter(path)
  local limiter = assert(loadfile(path))(muldiv)
  return function(state, now, ...)
    local granted, remaining, retry_after, reset, new_state, delay, needed, lasts, next_unit = limiter(state, now, ...)
    if type(new_state) == "number" then new_state = ("%.17g"):format(new_state) end
    if needed and written[state] then
      check(path, needed <= written[state], "state %s: needed until %s, not %s", state, tostring(needed), tostring(written[state]))
    end
    if new_state and reset > 0 then
      if writings % 10000 == 0 then written = {} end
      writings = writings + 1
      written[new_state] = math.min(written[new_state] or math.huge, now + (lasts or reset))
    end
    return granted, remaining, retry_after, reset, new_state, delay, needed, lasts, next_unit
  end
end

-- Limiters whose ninth result is the time until more units are available.
local tells_next = { rolling_window = true, sliding_window_log = true, sliding_window_counter = true }

-- One random schedule. Returns false after a failure, because later checks would only repeat it.
local function schedule(name, limiter, length)
  local model = models[name]
  local limit, period = one_of { 1, 2, 3, 5, 7, 10, 16, 60 }, one_of { 1, 7, 10, 60, 100, 999, 1000, 4096 }
  local m = { limit = limit, period = period, burst = one_of { limit, limit, 1, 2, 2 * limit, 30 } }
  if name:find("window") then m.burst = limit end
  if name == "lockout" then m.option = one_of { 1, period, random(1, 5 * period) } end
  if random(2) == 1 and (name == "fixed_window" or name == "sliding_window_counter") then m.offset = random(0, 2 * period) end
  if name == "rolling_window" then m.option = one_of { 1, 2, 3, 10, 10, 50 } end
  if name == "leaky_bucket" then m.option = one_of { false, 0, random(1, 2 * period) } or nil end
  model.new(m)
  local now, state, ends = random(1, 3) * 1000000 + random(0, 5000), nil, nil
  m.anchor = m.offset and m.offset + math.floor(now / period) * period
  local charged_only, admitted = true, {}                 -- for the any-window check
  local queued = name == "leaky_bucket" and m.option and m.option > 0
  local timed = (name:find("window") or name == "lockout") and random(2) == 1     -- whether a refund has the time of its charge
  local ending = name:find("bucket") or name == "gcra"     -- whether a refund may have the time from which it has no effect
  local backward = random(10) == 1
  history = { ("limit %d period %d burst %d offset %s option %s"):format(limit, period, m.burst, tostring(m.offset), tostring(m.option)) }

  local function run(s, at, cost, mode) return limiter(s, at, limit, period, m.burst, cost, mode, m.offset, m.option) end
  local function most(at, cap)                             -- the largest cost that is admitted
    local n = 0
    while n < cap and model.can(m, at, n + 1) do n = n + 1 end
    return n
  end

  for _ = 1, length do
    local leap = random(12)
    if leap <= 4 then now = now
    elseif leap <= 7 then now = now + random(0, math.ceil(period / limit))
    elseif leap <= 9 then now = now + random(0, period)
    elseif leap == 10 then now = now + period * random(0, 2)
    elseif leap == 11 then now = now + random(0, 3 * period)
    elseif ends and ends > now then now = one_of { ends - 1, ends, ends + 1 } end
    if state and ends and now >= ends and random(2) == 1 then state = nil end          -- as Redis deletes it

    local mode = one_of { 0, 0, 0, 0, 1, 2 }
    local cost = one_of { 1, 1, 1, 1, 2, 3, limit, limit + 1, 0, -1, -2 }
    local charge = cost < 0 and timed and #admitted > 0 and admitted[random(math.max(1, #admitted - 6), #admitted)]
    if cost < 0 then mode = 0 end
    if charge and charge[2] > 0 then
      cost, mode = -math.min(-cost, charge[2]), charge[1]
      charge[2] = charge[2] + cost
    elseif timed and cost < 0 then
      cost = 0
    elseif ending and cost < 0 and random(2) == 1 then
      mode = -(now + one_of { -period, -1, 0, 1, period })
    end
    local capacity, least = model.capacity(m), (cost == 0 or mode == 1) and 1 or cost
    local before = most(now, capacity)
    local wait = name == "leaky_bucket" and model.wait(m, now)

    local granted, remaining, retry_after, reset, new_state, delay, _, _, next_unit = run(state, now, cost, mode)
    history[#history + 1] = ("now %.0f cost %d mode %d state %s -> %s %s %s %s %s %s"):format(now, cost, mode, show(state),
      tostring(granted), tostring(remaining), tostring(retry_after), tostring(reset), show(new_state), tostring(delay))

    local expected
    if cost < 0 then expected = cost
    elseif cost == 0 then expected = before >= 1 and 1 or 0
    elseif mode == 2 then expected = cost
    elseif mode == 1 then expected = math.min(cost, before)
    else expected = model.can(m, now, cost) and cost or 0 end
    if not check(name, granted == expected, "granted %s, not %d", tostring(granted), expected) then return false end

    if cost > 0 and granted > 0 then
      model.charge(m, now, granted)
      admitted[#admitted + 1] = { now, granted }
      if mode == 2 then charged_only = false end
    elseif cost < 0 and (mode >= 0 or now < -mode) then
      model.give_back(m, now, -cost, mode > 0 and mode or nil)
      if mode == 0 then charged_only = false end
    end

    local after = most(now, capacity)
    if not check(name, remaining == after, "remaining %s, not %d", tostring(remaining), after) then return false end

    if granted ~= 0 then
      if not check(name, retry_after == 0, "retry_after %s for an admitted request", tostring(retry_after)) then return false end
    elseif least > capacity then
      if not check(name, retry_after == -1, "retry_after %s for a cost that can never be admitted", tostring(retry_after)) then return false end
    else
      local probe, mode = cost == 0 and 1 or cost, cost == 0 and 0 or mode
      local exact = retry_after >= 1 and model.can(m, now + retry_after, least) and not model.can(m, now + retry_after - 1, least)
                    and run(state, now + retry_after, probe, mode) ~= 0 and run(state, now + retry_after - 1, probe, mode) == 0
      if not check(name, exact, "retry_after %s is not exact", tostring(retry_after)) then return false end
    end

    local over = reset >= 0 and model.fresh(m, now + reset) and (reset == 0 or not model.fresh(m, now + reset - 1))
    if not check(name, over, "reset %s is not exact", tostring(reset)) then return false end
    if tells_next[name] and cost >= 0 then
      local exact = next_unit == 0 and remaining == capacity
                    or next_unit > 0 and model.can(m, now + next_unit, remaining + 1) and not model.can(m, now + next_unit - 1, remaining + 1)
      if not check(name, exact, "%s until more than %d units are available is not exact", tostring(next_unit), remaining) then return false end
    end
    local kept = state
    if new_state then kept = reset > 0 and new_state or nil end
    local later, a_cost, a_mode = now + reset + random(0, 1) * random(0, period), random(0, limit + 1), random(0, 2)
    local a = { run(kept, later, a_cost, a_mode) }
    local b = { run(nil, later, a_cost, a_mode) }
    local same = a[1] == b[1] and a[2] == b[2] and a[3] == b[3] and a[4] == b[4] and a[6] == b[6]
    if not check(name, same, "a state past its reset differs from a missing state") then return false end

    local silent = granted == 0 or cost == 0
    if silent and not check(name, new_state == nil, "a rejection or query returned a state") then return false end
    if cost > 0 and granted > 0 and not check(name, new_state ~= nil, "a charge returned no state") then return false end
    if wait and m.option and m.option > 0 and cost > 0 and granted > 0 then
      if not check(name, delay == math.min(wait, m.option), "delay %s, not %d", tostring(delay), wait) then return false end
    elseif not check(name, delay == nil, "delay %s", tostring(delay)) then return false end
    if new_state then state, ends = kept, now + reset end

    if backward and random(4) == 1 then                    -- the clock goes back: never more than before, neither at once nor by retrying
      local back = now - random(1, period)
      local most_now = select(2, run(state, now, 0, 0))
      local most_back = select(2, run(state, back, 0, 0))
      if not check(name, most_back <= most_now, "%s remaining after the clock went back, %s before", tostring(most_back), tostring(most_now)) then
        return false
      end
      local g, _, r = run(state, back, 1, 0)
      if g == 0 and r > 0 then
        local exact = run(state, back + r, 1, 0) == 1 and run(state, back + r - 1, 1, 0) == 0
        if not check(name, exact, "retry_after %s is not exact after the clock went back", tostring(r)) then return false end
      end
      local _, _, _, s, charged = run(state, back, 1, 0)
      if charged and state and ends > now then
        local left = select(2, run(charged, now, 0, 0))
        if not check(name, left <= math.max(0, name == "sliding_window_counter" and most_now or most_now - 1), "a charge from before the clock went back was lost") then return false end
        check(name, s >= 1, "reset is not 0 after a charge")
      end
    end
  end

  if charged_only and (name == "sliding_window_log" or name == "rolling_window") then
    for i, one in ipairs(admitted) do                      -- the worst window starts with an admitted unit
      local sum = 0
      for j = i, #admitted do
        if admitted[j][1] >= one[1] + period then break end
        sum = sum + admitted[j][2]
      end
      if not check(name, sum <= limit, "%d in the window from %.0f", sum, one[1]) then return false end
    end
  end
  if name == "rolling_window" and state then
    check(name, #state <= 12 + 12 * (math.min(m.option, period) + 2), "%d bytes for %d buckets", #state, m.option)
  end
  return true
end

-- Units admitted and not refunded never exceed the limit in any interval of one period, with any refunds: the model
-- knows only the times. Refunds are exact for the log: exactly the refunded units are free at once. A refund of a
-- charge that is too old, does not exist, or was refunded before frees nothing.
local function refunds(name, limiter)
  local limit, period = one_of { 1, 3, 10, 50, 400 }, one_of { 60, 1000, 100000 }
  local option = name == "rolling_window" and one_of { 1, 2, 10 } or nil
  local now, state, ends, charges = 7000000 + random(0, 9999), nil, 0, {}
  history = { ("limit %d period %d option %s"):format(limit, period, tostring(option)) }
  local function run(cost, mode)
    if now >= ends then state = nil end
    local granted, remaining, _, reset, s = limiter(state, now, limit, period, limit, cost, mode, nil, option)
    history[#history + 1] = ("now %.0f cost %d mode %.0f -> %d %d %d"):format(now, cost, mode, granted, remaining, reset)
    if s then state, ends = reset > 0 and s or nil, now + reset end
    return granted, remaining
  end
  local function counting()
    local sum = 0
    for i = #charges, 1, -1 do
      if charges[i].time <= now - period then break end
      sum = sum + charges[i].units
    end
    return sum
  end
  for _ = 1, 6 * math.min(limit, 60) + 20 do
    if random(3) > 1 then now = now + random(0, math.ceil(2 * period / limit)) end
    local kind = random(10)
    if kind <= 6 or #charges == 0 then
      local granted = run(one_of { 1, 1, 1, 2, 7 }, one_of { 0, 0, 1 })
      if granted > 0 then charges[#charges + 1] = { time = now, units = granted } end
    else
      local charge = charges[random(kind == 10 and 1 or math.max(1, #charges - 30), #charges)]
      local units = kind == 7 and charge.units or math.min(charge.units, random(3))
      if units > 0 then
        local before = counting()
        local _, remaining = run(-units, charge.time)
        if charge.time > now - period then charge.units = charge.units - units end
        local freed = name == "sliding_window_log" and before - counting() or nil
        if freed and not check(name, remaining == limit - before + freed, "%d remain after %d were released", remaining, freed) then return end
      end
      if name == "sliding_window_log" and charges[#charges].time < now and random(3) == 1 then
        run(-1, now)                                      -- no charge has this time
        run(-1, now + period)
      end
    end
    local sum = counting()
    local _, remaining = run(0, 0)
    local fine = sum <= limit and remaining <= limit - sum and (name == "rolling_window" or remaining == limit - sum)
    if not check(name, fine, "%d counted, %d remaining of %d", sum, remaining, limit) then return end
  end
end

-- The numbers change while a state exists: never more at once than the new capacity, no error, and limiters that count
-- units show a raised limit at once, by exactly the difference.
local function changes(name, limiter)
  local limit, period = random(1, 20), one_of { 10, 100, 999, 1000 }
  local now, state = 5000000 + random(0, 9999), nil
  local offset = random(2) == 1 and 3 or nil
  local option = name == "rolling_window" and 10 or name == "lockout" and random(1, 2000) or nil
  history = {}
  local function run(s, at, l, p, cost, mode) return limiter(s, at, l, p, l, cost, mode or 0, offset, option) end
  for _ = 1, random(1, 10) do
    local _, _, _, reset, s = run(state, now, limit, period, random(1, 3))
    if s then state = s end
    history[#history + 1] = ("now %.0f limit %d period %d state %s"):format(now, limit, period, show(state))
    now = now + random(0, math.ceil(period / limit))
  end
  local old_left = select(2, run(state, now, limit, period, 0))
  local new_limit, new_period = random(1, 40), random(3) == 1 and random(1, 2000) or period
  history[#history + 1] = ("now %.0f limit %d period %d"):format(now, new_limit, new_period)
  local granted, left, retry_after, reset, adapted = run(state, now, new_limit, new_period, 0)
  state = adapted or state
  check(name, left >= 0 and left <= new_limit and reset >= 0, "remaining %s of %d after a change", tostring(left), new_limit)
  if new_period == period and name ~= "gcra" and name ~= "leaky_bucket" then
    if new_limit >= limit then
      check(name, left >= old_left + new_limit - limit or old_left == 0, "raised from %d to %d: %d left, then %d", limit, new_limit, old_left, left)
    else
      local most = name == "token_bucket" and old_left or math.max(0, old_left + new_limit - limit)   -- without tokens that have arrived since
      check(name, left <= most, "lowered from %d to %d: %d left, then %d", limit, new_limit, old_left, left)
    end
  end
  if granted == 0 then
    check(name, run(state, now + retry_after, new_limit, new_period, 1) == 1 and run(state, now + retry_after - 1, new_limit, new_period, 1) == 0,
          "retry_after %d is not exact after a change", retry_after)
  end
  -- After the change the new definition holds: at most its capacity at once, and at most its rate within a period.
  local start, sum = now, 0
  for _ = 1, 60 do
    local g, _, _, _, s = run(state, now, new_limit, new_period, 1)
    if s then state = s end
    if now < start + new_period then sum = sum + g end
    now = now + random(0, math.ceil(new_period / new_limit))
  end
  local bound = (name:find("bucket") or name == "gcra" or name == "fixed_window" or name == "lockout") and 2 * new_limit
                or name == "sliding_window_counter" and 2 * new_limit or new_limit
  check(name, sum <= bound, "%d within a period after the change to %d", sum, new_limit)
end

-- An unreadable state is treated as a missing one.
local function unreadable(name, limiter)
  history = {}
  local strange = { "", "x", "nan", "inf", "-inf", "1e400", "0x", ":", "1:", ":1", "1:2:3:4", "-", "\0", "\0\0\0\0\0", "--1:2", "1.5:2",
                    ("\255"):rep(17), ("\255"):rep(24), ("\255"):rep(29), ("7"):rep(17), ("7"):rep(24), ("7"):rep(29), "5 6", "9999999999999999:x" }
  for _, state in ipairs(strange) do
    for _, cost in ipairs { 1, 0, -1 } do
      local fine, granted, remaining, retry_after, reset = pcall(limiter, state, 1790000000000000, 5, 60000000, 5, cost, 0)
      check(name, fine and granted == (cost == 0 and 1 or cost) and remaining == (cost == 1 and 4 or 5) and retry_after == 0
                  and reset == (cost == 1 and reset > 0 and reset or 0),
            "state '%s', cost %d: %s %s %s %s", show(state), cost, tostring(granted), tostring(remaining), tostring(retry_after), tostring(reset))
    end
  end
  for _, state in ipairs { false, "1790000000000000:3", "3:1790000000000000" } do
    local granted, remaining, retry_after, reset = limiter(state or nil, 1790000000000000, 0, 60000000, 0, 1, 0)
    check(name, granted == 0 and remaining == 0 and retry_after == -1 and reset == reset, "a limit of 0")
  end
end

-- A very large debt remains a debt, also when it grows, and its numbers are within the range that Redis can return.
local function ruin(name, limiter)
  history = {}
  local now = 1790000000000000
  for _, n in ipairs { { 100, 60000000 }, { 1, 31622400000000 } } do
    local limit, period, state = n[1], n[2], nil
    for _ = 1, 3 do
      local granted, remaining, _, reset, s = limiter(state, now, limit, period, limit, 1000000000000, 2)
      check(name, granted == 1000000000000 and remaining == 0 and reset > 0 and reset <= 2 ^ 53 and s, "a debt of 10^12 units: %s %s %s",
            tostring(granted), tostring(remaining), tostring(reset))
      state = s
      local again, _, retry_after = limiter(state, now + 1000, limit, period, limit, 1, 0)
      check(name, again == 0 and retry_after <= 2 ^ 53, "the debt is lost or too large for the number format: %s %s", show(state), tostring(retry_after))
    end
  end
end

-- Present-day times and large numbers: a client that sends a request at each retry_after gets
-- exactly what the definition permits, over many periods.
local function drift(name, limiter)
  history = {}
  for _, n in ipairs { { 3, 1000000 }, { 7, 60000000 }, { 999983, 86400000000 }, { 1000000, 2592000000000 }, { 123456789, 31622400000000 } } do
    local limit, period = n[1], n[2]
    local start = 1790000000000000
    local now, state, sum = start, nil, 0
    local cost = math.max(1, math.floor(limit / 3))
    for _ = 1, 500 do
      local g, _, retry_after, _, s = limiter(state, now, limit, period, limit, cost, 0)
      if s then state = s end
      sum = sum + g
      if g == 0 then now = now + retry_after end
    end
    local turns = (now - start) / period
    local bound = turns * limit + limit
    local floor_ = (name:find("window") or name == "lockout") and name ~= "sliding_window_counter" and math.floor(turns) * limit * 0.6 or turns * limit * 0.6
    check(name, sum <= bound + cost, "%d of %d admitted in %.3f periods", sum, limit, turns)
    check(name, sum >= floor_, "only %d of %d admitted in %.3f periods", sum, limit, turns)
    if name == "token_bucket" or name == "gcra" or name == "leaky_bucket" then
      -- A client that sends requests continuously gets the k-th unit after the burst exactly ceil(k * period / limit) after the start.
      local taken = limit
      local s = select(5, limiter(nil, start, limit, period, limit, limit, 0))
      for _ = 1, 200 do
        local _, _, wait = limiter(s, start, limit, period, limit, 1, 0)
        local k = taken - limit + 1
        local q = math.floor(k * period / limit)
        check(name, wait == q or wait == q + 1 or wait == q - 1, "unit %d after %s µs", k, tostring(wait))
        local g, _, _, _, t = limiter(s, start + wait, limit, period, limit, 1, 0)
        if not check(name, g == 1 and t, "unit %d is late", k) then return end
        s, taken = t, taken + 1
      end
    end
  end
end

-- leaky_bucket as a queue that requests leave: before their time (the client disconnected) or soon after it (no server
-- accepted the request). The model is the list of the remaining requests with their times. Exact to the µs: if
-- period / limit is not an integer, times are rounded up to whole µs, and an interval may be 1 µs too short.
local function queue(limiter)
  local name, now, state, stay = "leaky_bucket", random(1000000, 2000000), nil, {}
  local limit, period = one_of { 1, 1, 2, 3, 7, 10 }, one_of { 20, 60, 100, 420, 1000, 4096 }
  local unit, whole = period / limit, period % limit == 0
  local burst, max_delay = one_of { limit, 5, 30 }, one_of { random(1, 2 * period), 10 * period, 100 * period }
  history = { ("queue: limit %d period %d burst %d max_delay %d"):format(limit, period, burst, max_delay) }
  local loose = whole and 0 or 2
  -- Whether n units may be forwarded at `at`, given the remaining ones before and after them.
  local function fits(at, n, short)
    for _, r in ipairs(stay) do
      if r.at <= at and at < r.at + r.n * unit - short then return false end
      if r.at > at and at + n * unit - short > r.at then return false end
    end
    return true
  end
  local function note(what, ...) history[#history + 1] = what:format(...) end
  for _ = 1, random(10, 80) do
    now = now + one_of { 0, 0, 0, 1, random(0, math.ceil(unit)), random(0, period) }
    local free = state and select(2, state:gsub(":", "")) or 0
    local crowded = free > 28                              -- the earliest free places may have been dropped
    if random(3) == 1 and #stay > 0 then
      local i = random(#stay)
      local r = stay[i]
      if r.at + r.n * unit + 1 > now - 2 * period then
        local granted, _, _, _, new, delay = limiter(state, now, limit, period, burst, -r.n, r.at, nil, max_delay)
        note("now %.0f: %d units of %.0f leave, state %s -> %s", now, r.n, r.at, show(state), show(new))
        check(name, granted == -r.n and delay == nil, "leaving granted %s", tostring(granted))
        if new then state = new end
        table.remove(stay, i)
      end
    else
      local cost, mode = one_of { 1, 1, 1, 1, 2, 3 }, one_of { 0, 0, 0, 1 }
      local look, left = limiter(state, now, limit, period, burst, 0, 0, nil, max_delay)
      local granted, _, retry_after, reset, new, delay = limiter(state, now, limit, period, burst, cost, mode, nil, max_delay)
      note("now %.0f: cost %d mode %d state %s -> granted %s retry_after %s reset %s delay %s", now, cost, mode, show(state),
           tostring(granted), tostring(retry_after), tostring(reset), tostring(delay))
      check(name, (look == 1) == (left >= 1) and (granted == cost or mode == 1 or left < cost or free > 0), "%s left, granted %s", tostring(left), tostring(granted))
      check(name, granted == math.min(cost, left) or mode == 0 and (granted == cost and left >= cost or granted == 0 and left < cost),
            "%s left, granted %s", tostring(left), tostring(granted))
      if granted > 0 then
        if not check(name, fits(now + delay, granted, whole and 0 or 1.000001), "%d units at %.0f are forwarded too early", granted, now + delay) then return end
        if not check(name, delay >= 0 and delay <= max_delay, "delay %s", tostring(delay)) then return end
        if not crowded and mode == 0 and (whole or unit >= 4) then       -- no earlier time was possible
          local earliest = now
          while earliest < now + delay - loose and not fits(earliest, cost, -loose) do earliest = earliest + 1 end
          if not check(name, earliest >= now + delay - loose, "%d units could be forwarded at %.0f, not %.0f", cost, earliest, now + delay) then return end
        end
        stay[#stay + 1] = { at = now + delay, n = granted }
        if new then state = new end
      elseif retry_after > 0 then
        check(name, limiter(state, now + retry_after, limit, period, burst, mode == 1 and 1 or cost, 0, nil, max_delay) ~= 0
                    and (mode == 1 or limiter(state, now + retry_after - 1, limit, period, burst, cost, 0, nil, max_delay) == 0),
              "retry_after %s is not exact", tostring(retry_after))
        check(name, new == nil, "a rejection returned a state")
      end
    end
    check(name, not state or #state <= 600, "%d bytes", state and #state or 0)
  end
end

-- concurrency: several holders acquire, release, renew and stop without release, compared with a list of the units and
-- the expiry of each.
local function flights(limiter)
  local name, now, state, ends = "concurrency", random(1000000, 2000000), nil, 0
  local limit, lease, holders = one_of { 1, 2, 5, 20 }, one_of { 10, 100, 1000 }, {}
  local has, till = {}, {}
  for i = 1, one_of { 1, 2, 3, 8 } do holders[i] = random(1, 16777215) * 16777216 + i end
  history = { ("concurrency: limit %d lease %d"):format(limit, lease) }
  local function total()
    local sum, last = 0, now
    for _, h in ipairs(holders) do
      if (till[h] or 0) <= now then has[h] = nil end
      sum = sum + (has[h] or 0)
      if has[h] and till[h] > last then last = till[h] end
    end
    return sum, last
  end
  for _ = 1, random(10, 80) do
    now = now + one_of { 0, 0, 1, random(0, lease), random(0, math.ceil(lease / 3)) }
    if state and now >= ends and random(2) == 1 then state = nil end
    local h, cost, mode = one_of(holders), one_of { 1, 1, 1, 2, 3, -1, -1, -2, 0, limit + 1 }, one_of { 0, 0, 0, 0, 1, 3 }
    if cost < 0 then mode = 0 end
    local before = total()
    local own, left = has[h] or 0, limit - before
    local granted, remaining, retry_after, reset, new = limiter(state, now, limit, lease, h, cost, mode)
    history[#history + 1] = ("now %.0f: holder %.0f cost %d mode %d state %s -> %s %s %s %s %s"):format(now, h, cost, mode, show(state),
      tostring(granted), tostring(remaining), tostring(retry_after), tostring(reset), show(new))
    local expected, now_has = 0, own
    if mode == 3 and cost == 0 then expected = own
    elseif mode == 3 then expected, now_has = cost, cost
    elseif cost < 0 then expected, now_has = cost, math.max(0, own + cost)
    elseif cost == 0 then expected = left >= 1 and 1 or 0
    elseif cost <= left then expected, now_has = cost, own + cost
    elseif mode == 1 and left >= 1 then expected, now_has = left, own + left end
    if not check(name, granted == expected, "granted %s, not %d", tostring(granted), expected) then return end
    local writes = mode == 3 and (cost > 0 or own > 0) or cost < 0 and own > 0 or mode ~= 3 and cost > 0 and expected > 0
    has[h] = now_has > 0 and now_has or nil
    if writes then till[h] = now + lease end
    local after, last = total()
    check(name, remaining == math.max(0, limit - after), "remaining %s with %d of %d in flight", tostring(remaining), after, limit)
    check(name, reset == last - now, "reset %s, not %d", tostring(reset), last - now)
    check(name, (new ~= nil) == (writes or false), "a state without a change, or a change without a state: %s", show(new))
    local never = (cost == 0 or mode == 1) and limit < 1 or mode == 0 and cost > limit
    check(name, retry_after == (granted ~= 0 and 0 or mode == 3 and 0 or never and -1 or 1000000), "retry_after %s", tostring(retry_after))
    if mode ~= 3 and cost > 0 then check(name, granted == 0 or after <= limit, "%d in flight of %d", after, limit) end
    if new then state, ends = reset > 0 and new or nil, now + reset end
  end
  -- An unreadable state counts as missing, and the number of holders is bounded.
  for _, strange in ipairs { "", "x", ":", "1:2", "nan:1:2", "\0", "1:2:3:4", ("7"):rep(40), ("\255"):rep(17) } do
    local fine, g, r = pcall(limiter, strange, 1790000000000000, 5, 60000000, 9, 1, 0)
    check(name, fine and g == 1 and r == 4, "state '%s'", show(strange))
  end
end

local function many_holders(limiter)
  local name, now, state = "concurrency", 1790000000000000, nil
  history = {}
  for h = 1, 300 do
    local _, _, _, _, new = limiter(state, now, 1000000, 10000000, 281474976710000 + h, 1, 0)
    state = new or state
  end
  local granted, _, retry_after = limiter(state, now, 1000000, 10000000, 5, 1, 0)
  check(name, granted == 0 and retry_after == 1000000 and #state < 12000, "300 holders: %d bytes, granted %s", #state, tostring(granted))
  check(name, limiter(state, now, 1000000, 10000000, 281474976710001, 1, 0) == 1, "a known holder is admitted again")
  check(name, limiter(state, now + 10000000, 1000000, 10000000, 5, 1, 0) == 1, "a unit is free after the lease")
end

-- Published request sequences and numbers of the systems that weir replaces.
local published = {
  sliding_window_log = function(limiter)
    local state, passes = nil, {}
    for now = 0, 9999999, 1383 do                          -- 7,231 calls in 10 s
      local g, _, _, _, s = limiter(state, now, 2, 4000000, 2, 1, 0)
      if g == 1 then state = s; passes[#passes + 1] = math.floor(now / 1000000) end
    end
    local crowd = nil
    for _ = 1, 1000 do crowd = select(5, limiter(crowd, 1790000000000000, 1000, 1000000, 1000, 1, 0)) end
    check("sliding_window_log", #crowd == 29 and limiter(crowd, 1790000000000000, 1000, 1000000, 1000, 1, 0) == 0,
          "1000 requests in one µs count as 1000 in one entry")
    check("sliding_window_log", table.concat(passes, " ") == "0 0 4 4 8 8", "2 per 4 s in a tight loop passed at %s", table.concat(passes, " "))
  end,
  token_bucket = function(limiter)
    local state, sum = nil, 0
    for _ = 1, 1200 do
      local g, _, _, _, s = limiter(state, 1790000000000000, 1000, 60000000, 1000, 1, 0)
      state, sum = s or state, sum + g
    end
    check("token_bucket", sum == 1000, "1,200 at once at a limit of 1,000: %d passed", sum)
    local empty, passes = select(5, limiter(nil, 0, 1, 2000000, 10, 10, 0)), 0
    for now = 100000, 20000000, 100000 do                  -- a request every 100 ms does not prevent it from filling
      local g, _, _, _, s = limiter(empty, now, 1, 2000000, 10, 1, 0)
      empty, passes = s or empty, passes + g
    end
    check("token_bucket", passes == 10, "one token each 2 s, requests for 20 s: %d passed", passes)
    local batch = { limiter(nil, 0, 1000, 1000000, 1000, 250, 0) }
    check("token_bucket", batch[1] == 250 and batch[2] == 750, "a batch of 250")
  end,
  fixed_window = function(limiter)
    local state, now, used, resets = nil, 1790000000000000, {}, {}
    for i = 1, 5 do                                        -- client-2: 3 a minute
      local g, remaining, retry_after, reset, s = limiter(state, now + i * 1000000, 3, 60000000, 3, 1, 0)
      state = s or state
      used[i], resets[i] = (g == 1 and "200 " or "429 ") .. (3 - remaining), reset
      check("fixed_window", g == 1 or retry_after == reset, "retry_after is the window's end")
    end
    check("fixed_window", table.concat(used, ", ") == "200 1, 200 2, 200 3, 429 3, 429 3", "the responses were %s", table.concat(used, ", "))
    check("fixed_window", resets[5] == resets[1] - 4000000, "reset decreases with time")
    local a = { limiter(nil, 0, 10, 1000000, 10, 8, 1) }
    local b = { limiter(a[5], 400000, 10, 1000000, 10, 8, 1) }
    check("fixed_window", a[1] == 8 and b[1] == 2 and b[4] == 600000, "best effort takes what is left")
    -- A daily quota that starts at 08:00 in a zone two hours ahead of UTC.
    local day, hour = 86400000000, 3600000000
    local _, _, _, reset = limiter(nil, 20000 * day + 5.5 * hour, 10, day, 10, 1, 0, 6 * hour)
    check("fixed_window", reset == 0.5 * hour, "the day starts at the offset")
    -- An hourly limit that becomes a limit per minute keeps recent charges.
    local s = select(5, limiter(nil, 20 * hour + 100000000, 100, hour, 100, 40, 0, 0))
    s = select(5, limiter(s, 20 * hour + 605000000, 100, hour, 100, 40, 0, 0))
    check("fixed_window", select(2, limiter(s, 20 * hour + 610000000, 100, 60000000, 100, 0, 0, 0)) == 20, "a shorter period")
    -- Two hosts whose clocks differ by 2 s share a window of 1 s, because only Redis' clock is used.
    local one = { limiter(nil, 5000000, 1, 1000000, 1, 1, 0, 0) }
    check("fixed_window", limiter(one[5], 5999999, 1, 1000000, 1, 1, 0, 0) == 0 and limiter(one[5], 6000000, 1, 1000000, 1, 1, 0, 0) == 1, "one slot")
  end,
  lockout = function(limiter)
    -- Five failed logins within a minute: a lockout of an hour from the fifth on, regardless of further attempts.
    local now, state, answers = START, nil, {}
    for i = 1, 7 do
      local granted, left, retry_after, _, s = limiter(state, now, 5, 60000000, 5, 1, 0, nil, 3600000000)
      state, answers[i], now = s or state, ("%d %d %.0f"):format(granted, left, retry_after / 1000000), now + 10000000
    end
    check("lockout", table.concat(answers, ", ") == "1 4 0, 1 3 0, 1 2 0, 1 1 0, 1 0 0, 0 0 3590, 0 0 3580", "the results were %s", table.concat(answers, ", "))
    check("lockout", select(2, limiter(state, START + 3640000000, 5, 60000000, 5, 1, 0, nil, 3600000000)) == 4, "after the lockout, five attempts are permitted again")
  end,
}

local names = #only > 0 and only or
  { "token_bucket", "leaky_bucket", "fixed_window", "rolling_window", "sliding_window_log", "sliding_window_counter", "gcra",
    "lockout", "concurrency" }
math.randomseed(seed)
for i, name in ipairs(names) do
  if name == "concurrency" then                            -- the other limiters have no holders
    local limiter = load_limiter(luadir .. "/concurrency.lua")
    for _ = 1, math.max(100, steps / 10) do flights(limiter) end
    many_holders(limiter)
    names[i] = nil
  end
end
for _, name in pairs(names) do
  local path = luadir .. "/" .. name .. ".lua"
  local limiter = load_limiter(path)
  local left = steps
  while left > 0 and failed < 20 do
    local length = math.min(left, random(5, 60))
    schedule(name, limiter, length)
    left = left - length
  end
  for _ = 1, math.max(200, steps / 20) do changes(name, limiter) end
  if name == "rolling_window" or name == "sliding_window_log" then
    for _ = 1, math.max(100, steps / 40) do refunds(name, limiter) end
  end
  if name == "leaky_bucket" then
    for _ = 1, math.max(100, steps / 40) do queue(limiter) end
  end
  unreadable(name, limiter)
  ruin(name, limiter)
  drift(name, limiter)
  if published[name] then published[name](limiter) end
end
print(("seed %d"):format(seed))
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
