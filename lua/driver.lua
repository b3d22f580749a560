-- The driver: one call for the limits of one request, or of several requests, on keys of one slot.
--
-- The generated preamble above defines `limits`, a table by the index of a limit as text or, if the
-- policy has one limit, this `limit`:
--   run      the function of a limiter file
--   period   in µs
--   amount, burst
--            the limit's own numbers
--   numbers  the end of a state with these numbers, for limiters that write them into their states
--   offset   in µs, or nil
--   options  an array, or nil
--   exact    whether the state must expire exactly at its reset
--   repeats  how many repeats of a request are free
--   next     whether the limiter returns the time until more units are available
-- The clock and each state are read once, and every charge is written. A request is charged on all
-- its limits or on none. The requests of a call see each other's charges, in order.
--
-- KEYS   the distinct state keys
-- ARGV   now in µs, or "" for the clock of Redis, which may be left out before a plain run; then
--        runs of requests that differ only in their keys. If `now` is given, "0" and a later time
--        may come before a run. A run starts with ten times its number of requests, plus the number
--        of limits of each request (1 to 8).
--        In a plain run, this number is negative, and the index of each limit follows. Each request
--        costs one unit of each limit, by the limit's own numbers, all or nothing. The keys of
--        plain runs are the first ones of KEYS, in order: a request's limits one after the other.
--        In other runs, for each limit follow:
--          limit  index into `limits`
--          key    index into KEYS
--          cost   a negative cost is a refund; it never rejects
--          mode   0 all or nothing, 1 best effort, 2 into debt, 3 renew (concurrency); see below
--          limit  the number of units
--          burst
--          step   only in a run of several requests: what to add to the index of the key for each
--                 next request
--        If 1000 is added to the number that starts the run, the requests have a priority that may
--        use only a share of some limits. Then for each limit follow at the end:
--          reserve  the units that must be left for higher priorities; 0: none
--          longest  in µs, a queue's longest delay for this priority
--        A run of descriptors starts with 19, then 1 if a descriptor with quota_mode passes without
--        a limit, else 0, and the number of descriptors. For each follow twice its number of
--        limits, plus 1 with quota_mode, and its limits as above, without step. All are one
--        request. A descriptor with quota_mode that is rejected is not charged; it rejects the
--        request only if all with quota_mode are rejected.
--        The mode of a refund is the time of its charge, or 0. For token_bucket, gcra and
--        leaky_bucket as a meter, it is minus the time from which the charge no longer counts; from
--        then on the refund has no effect. In the mode of other costs:
--          + 4      if a request has several limits: the limit is only tried (shadow, enforce). Its
--                   rejection does not reject the request
--          7        all or nothing, but a limit that rejects is charged into debt. That does not
--                   reject the request
--          + 8 * i  KEYS[i] stores the answer to a charge. While it does, repeats are free, up to
--                   `repeats`
-- Reply  for each request, for each of its limits: granted, remaining, retry_after, reset, delay;
--        at the end now, the time of all charges. In a plain run, a limit that grants the unit at
--        once is answered with remaining and reset alone; other answers start with -1. Three
--        or four numbers may come as one text of 24 or 32 bytes: as little-endian integers.
--        The numbers of a limit with `next` end with the time until more units are available, or
--        reset if the limiter returned none.
--        A limit that rejects has granted 0. In a rejected request the other limits report what
--        they would have granted, and their numbers without the charge. A repeat has the first
--        answer's numbers, its reset counted from now, and retry_after 1.
--
-- An error in a limiter fails the call. weir's own limiters raise none. guard.lua wraps custom
-- limiters, so that an error fails only their requests.
--
-- Expiry of keys. A state is needed until now + reset, or until now + the limiter's eighth result.
-- A state of a custom limiter (`exact`) and a stored answer expire exactly then, since their expiry
-- is meaningful. Any other state lives to the end of its SLOT (4194304 µs), plus up to one more
-- SLOT, so that keys do not expire all at once. Some limiters can derive from the old state until
-- when it was needed, and return that time as their seventh result. If a new state ends in the same
-- SLOT, the key's expiry is still sufficient. A write without an expiry costs Redis half.
--
-- States with other numbers. The numbers (limit, period, burst) change with an edited policy or
-- another plan. A limiter that reads a state with other numbers returns the same usage in the
-- current numbers, even if it rejects or only checks. The driver writes that state at once, whether
-- or not the request is admitted. It charges nothing, and from then on time passes by the new
-- numbers.

-- weir leaves out the parts that no limit of the policy uses: the lines from "--{ FEATURE" to
-- "--}". The file with all features is a complete script as well.
--   clock     the caller may pass its own clock (only `weir replay` does)
--   own       custom limiters: their states may be numbers
--   options   limits with options
--   dedup     limits with dedup
--   many      policies with more than one limit
--   several   rules with more than one limit
--   calls     descriptors of the rate limit service
--   next      limiters that return the time until more units are available as their ninth result
--   priority  policies with priorities
--   numbers   limiters that write limit, period and burst into their states: numbers[1] is the end
--             of a state with the current numbers if they are the limit's own, else nil, since
--             formatting numbers is expensive
--
-- Redis runs all of this for every call. Its Lua takes some 50 machine instructions per step, a
-- thousand per argument or text, and two thousand per function or table that is made.
local call, ARGV, KEYS, unpack = redis.call, ARGV, KEYS, unpack
local SLOT = 4194304

-- Step 1: the time. If the caller passes its own clock, limiters detect expired states themselves.
-- Keys must only not expire too early. States that must expire exactly begin with their end then.
local at = ARGV[1] == "" and 2 or 1
local now
--{ clock
local margin = 0
if at == 1 and ARGV[1] + 0 > 0 then now, margin, at = ARGV[1] + 0, 3600000, 2 end
--}
if not now then
  local time = call("TIME")
  now = time[1] * 1000000 + time[2]
end

-- Step 2: all states. MGET even for one key: it returns nil for a key of another type. From here on
-- `states` holds what the requests of this call have made of them.
local states = call("MGET", unpack(KEYS))
--{ clock
local ends_of = {}
local function expire()
  for i = 1, #KEYS do
    local ends = ends_of[KEYS[i]]
    if ends and ends <= now then states[i] = false end
  end
end
for i = 1, margin > 0 and #KEYS or 0 do
  local ends, state = (states[i] or ""):match("^\1ends (%d+):(.*)$")
  if ends then states[i], ends_of[KEYS[i]] = state, ends + 0 end
end
expire()
--}

-- Step 3: what writes a state.
--{ own
local function text_of(number)
  -- "%d" is twice as fast, and correct for whole numbers on 64-bit Redis.
  local text = ("%d"):format(number)
  return text + 0 == number and text or ("%.17g"):format(number)
end
--}

-- Writes a state in place of `old`, which was needed until `needed` (nil: unknown).
local function write(key, state, reset, exact, old, needed)
  local ends = now + reset
  if reset <= 0 then return call("DEL", key) end
--{ clock
  if margin > 0 then needed = nil end
--}
  if needed and needed - needed % SLOT == ends - ends % SLOT then
    if #state == #old then return call("SETRANGE", key, "0", state) end
    return call("SET", key, state, "KEEPTTL")
  end
  -- + 1000, since Redis truncates its clock to ms.
  if not exact then reset = reset + SLOT + 1000 - ends % SLOT + now % 65536 * 64 end
  local ms = (reset + -reset % 1000) / 1000
--{ clock
  ms = ms + margin
--}
--{ own
  if type(state) == "number" then state = text_of(state) end
--}
--{ clock
  ends_of[key] = exact and margin > 0 and ends or nil
  if ends_of[key] then state = ("\1ends %.0f:%s"):format(ends, state) end
--}
  call("SET", key, state, "PX", math.min(ms, 1e13))
end

-- Step 4: the reply.
local reply, filled = { 0, 0, 0, 0 }, 0

--{ dedup
-- Returns the stored answer to an earlier charge and the text to store in its place. Returns
-- nothing if it is unreadable, has expired or has no free repeat left. Format:
-- "GRANTED:REMAINING:ENDS:REPEATS", with the time of its expiry and the number of repeats that are
-- still free.
local function answered(text)
  local granted, remaining, ends, repeats = (text or ""):match("^(%d+):(%d+):(%d+):(%d+)$")
  if granted and ends + 0 > now and repeats + 0 > 0 then
    return granted + 0, remaining + 0, 1, ends - now, ("%s:%s:%s:%.0f"):format(granted, remaining, ends, repeats - 1)
  end
end

-- Returns the text to store for a charge.
local function remembered(limit, granted, remaining, reset)
  return ("%.0f:%.0f:%.0f:%.0f"):format(granted, remaining, now + reset, limit.repeats or 10)
end
--}

--{ priority
-- Wraps the function of a limiter for requests of a priority, which leave `reserve` units of the
-- limit to higher ones. A limiter is a pure function of the state and the cost. So a request that
-- leaves them is one after which a request for `reserve` units would be admitted: together they
-- cost `cost + reserve`. This is tried first, and only then the cost alone is charged. The wait of
-- a rejected request is that of both together. It holds for every limiter, also custom ones.
-- `longest` replaces the first option of a queue, max_delay.
local function leaving(run, reserve, longest)
  return function(state, now, amount, period, burst, cost, mode, offset, first, ...)
    if longest > 0 then first = longest end
    if cost < 0 or mode > 1 then return run(state, now, amount, period, burst, cost, mode, offset, first, ...) end
    if mode == 1 and cost > 0 then
      local granted = run(state, now, amount, period, burst, cost + reserve, 1, offset, first, ...)
      cost = granted > reserve and granted - reserve or 1
    end
    local granted, remaining, retry_after, reset, new_state, delay, needed, lasts, next_unit =
      run(state, now, amount, period, burst, cost > 0 and cost + reserve or 0, 0, offset, first, ...)
    if granted > 0 and cost > 0 then return run(state, now, amount, period, burst, cost, 0, offset, first, ...) end
    if next_unit and remaining <= reserve and cost ~= 1 then
      local _
      _, _, next_unit = run(state, now, amount, period, burst, 1 + reserve, 0, offset, first, ...)
    elseif next_unit and remaining <= reserve then
      next_unit = retry_after
    end
    return granted, remaining, retry_after, reset, new_state, delay, needed, lasts, next_unit
  end
end
--}

-- Step 5: requests with several limits.
--{ several
-- Returns the current state of a key.
local function state_of(key)
  local state = states[key] or nil
--{ own
  if type(state) == "number" then state = text_of(state) end
--}
  return state
end

-- Runs a limit as `one` of run_of_several() says, for a cost and a mode of its own.
local function ask(one, state, cost, mode)
  local limit, amount, burst = one.limit, one.amount, one.burst
  local run = limit.run
--{ priority
  run = one.run or run
--}
--{ numbers
  numbers[1] = one.numbers
--}
--{ options
  if limit.options then
    return run(state, now, amount, limit.period, burst, cost, mode, limit.offset, unpack(limit.options))
  end
--}
  return run(state, now, amount, limit.period, burst, cost, mode, limit.offset)
end

-- Requests with several limits: a request is written if none of its limits rejects it. Until then
-- these arrays hold its changes, in order.
local changed, keys, olds, news, resets, exacts, neededs = 0, nil, nil, nil, nil, nil, nil

-- Writes a state with the same usage in the current numbers.
local function renumber(key, state, lasts, exact, needed)
  write(KEYS[key], state, lasts, exact, states[key], needed)
  states[key] = lasts > 0 and state
end

local function change(key, state, reset, exact, needed)
  changed = changed + 1
  keys[changed], olds[changed], news[changed], resets[changed], exacts[changed], neededs[changed] =
    key, states[key], state, reset, exact or false, needed or false
  states[key] = reset > 0 and state
end

local function write_changes()
  for i = 1, changed do write(KEYS[keys[i]], news[i], resets[i], exacts[i], olds[i], neededs[i]) end
end

-- Runs one limit of one request and stores its answer in `one`. Returns true if it rejects the
-- request.
local function decide(one)
  local limit, key, cost, mode = one.limit, one.key, one.cost, one.mode
  local tried = cost < 0 or mode > 3
--{ dedup
  local memory, memo
  if cost >= 0 and mode > 7 then
    memory, mode = (mode - mode % 8) / 8, mode % 8
    tried = mode > 3
  end
--}
--{ calls
  local every = mode == 7 and cost > 0
  if every then mode = 4 end
--}
  if cost >= 0 and tried then mode = mode - 4 end
  local granted, remaining, retry_after, reset, state, delay, needed, lasts, next_unit
--{ dedup
  if memory then granted, remaining, retry_after, reset, memo = answered(states[memory]) end
  if memo then
    change(memory, memo, reset, true)
  else
--}
    granted, remaining, retry_after, reset, state, delay, needed, lasts, next_unit = ask(one, state_of(key), cost, mode)
--{ dedup
  end
--}
  one.granted, one.remaining, one.retry_after, one.reset, one.delay = granted, remaining, retry_after, reset, delay or 0
--{ next
  one.next_unit = next_unit or reset
--}
--{ calls
  if every and granted == 0 then
    local _
    _, one.remaining, _, one.reset, state, _, needed, lasts, next_unit = ask(one, state_of(key), cost, 2)
--{ next
    one.next_unit = next_unit or one.reset
--}
    if state then change(key, state, lasts or one.reset, limit.exact, needed) end
    _, _, one.retry_after = ask(one, state_of(key), cost, 0)
    return false
  end
--}
  if granted == 0 or cost == 0 then
    if state then renumber(key, state, lasts or reset, limit.exact, needed) end
    return granted == 0 and not tried
  end
  if state then
    change(key, state, lasts or reset, limit.exact, needed)
--{ dedup
    if memory and reset > 0 then
      change(memory, remembered(limit, granted, remaining, reset), reset, true)
    end
--}
  end
end

-- Undoes the charges of a rejected request. The other limits report what they would have granted.
local function put_back(wanted)
  for i = changed, 1, -1 do states[keys[i]] = olds[i] end
  for i = 1, #wanted do
    local one = wanted[i]
    if one.granted ~= 0 and one.retry_after ~= 1 then
      local _, remaining, _, reset, state, _, needed, lasts, next_unit = ask(one, state_of(one.key), 0, 0)
      if state then renumber(one.key, state, lasts or reset, one.limit.exact, needed) end
      one.remaining, one.retry_after, one.reset, one.delay = remaining, 0, reset, 0
--{ next
      one.next_unit = next_unit or reset
--}
    end
  end
end

-- Reads the limits of a run. `plain`: the index of its first key; nil: the run is not plain.
-- `width`: the number of arguments per limit.
local function read_limits(from, count, plain, width)
  local wanted = {}
  for i = 1, count do
    if plain then
      local limit = limits[ARGV[from + i - 1]]
      wanted[i] = { limit = limit, key = plain + i - 1, cost = 1, mode = 0, amount = limit.amount, burst = limit.burst, step = count,
                    numbers = limit.numbers, granted = 0, remaining = 0, retry_after = 0, reset = 0, delay = 0 }
    else
      local index, key, cost, mode, amount, burst, step = unpack(ARGV, from + (i - 1) * width, from - 1 + i * width)
--{ priority
      if width == 8 then step = 0 end
--}
      local limit = limits[index]
      wanted[i] = { limit = limit, key = key + 0, cost = cost + 0, mode = mode + 0, amount = amount + 0, burst = burst + 0, step = (step or 0) + 0,
                    numbers = amount + 0 == limit.amount and burst + 0 == limit.burst and limit.numbers or nil,
                    granted = 0, remaining = 0, retry_after = 0, reset = 0, delay = 0 }
--{ priority
      if width > 7 and ARGV[from - 2 + i * width] ~= "0" then
        wanted[i].run = leaving(limit.run, ARGV[from - 2 + i * width] + 0, ARGV[from - 1 + i * width] + 0)
      end
--}
    end
  end
  return wanted
end

local function run_of_several(from, requests, count, plain, width)
  local wanted = read_limits(from, count, plain, width)
  if not keys then           -- of the usual size, since growing a table allocates it again
    keys, olds, news, resets, exacts, neededs =
      { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }
  end
  for _ = 1, requests do
    local rejected = false
    changed = 0
    for i = 1, count do rejected = decide(wanted[i]) or rejected end
    if rejected then put_back(wanted) else write_changes() end
    for i = 1, count do
      local one = wanted[i]
      one.key = one.key + one.step
      if plain and one.granted == 1 and one.retry_after == 0 and one.delay == 0 then
        reply[filled + 1], reply[filled + 2] = one.remaining, one.reset
        filled = filled + 2
      else
        if plain then filled = filled + 1; reply[filled] = -1 end
        reply[filled + 1], reply[filled + 2], reply[filled + 3], reply[filled + 4], reply[filled + 5] =
          one.granted, one.remaining, one.retry_after, one.reset, one.delay
        filled = filled + 5
      end
--{ next
      if one.limit.next then filled = filled + 1; reply[filled] = one.next_unit end
--}
    end
  end
end
--{ calls
-- Undoes the changes of a rejected descriptor, which came after the first ones, and asks its limits
-- again.
local function undo(first, wanted)
  for i = changed, first + 1, -1 do states[keys[i]] = olds[i] end
  changed = 0
  put_back(wanted)
  changed = first
end

-- Runs a run of descriptors. Returns the index after it.
local function run_of_descriptors(from)
  local passes, descriptors = ARGV[from + 1] == "1", ARGV[from + 2] + 0
  local at, over, quotas, quotas_over, all = from + 3, false, 0, 0, {}
  if not keys then keys, olds, news, resets, exacts, neededs = {}, {}, {}, {}, {}, {} end
  changed = 0
  for _ = 1, descriptors do
    local number = ARGV[at] + 0
    local quota, first, rejected = number % 2, changed, false
    local count = (number - quota) / 2
    local wanted = read_limits(at + 1, count, nil, 6)
    for i = 1, count do
      rejected = decide(wanted[i]) or rejected
      all[#all + 1] = wanted[i]
    end
    if rejected then
      undo(first, wanted)
      if quota == 1 then quotas_over = quotas_over + 1 else over = true end
    end
    quotas, at = quotas + quota, at + 1 + count * 6
  end
  if quotas > 0 and quotas == quotas_over and not passes then over = true end
  if over then put_back(all) else write_changes() end
  for i = 1, #all do
    local one = all[i]
    reply[filled + 1], reply[filled + 2], reply[filled + 3], reply[filled + 4], reply[filled + 5] =
      one.granted, one.remaining, one.retry_after, one.reset, one.delay
    filled = filled + 5
--{ next
    if one.limit.next then filled = filled + 1; reply[filled] = one.next_unit end
--}
  end
  return at
end
--}
--}

-- Step 6: all runs. Requests with one limit are decided and written one after the other, here.
local last, next_key = #ARGV, 1
while at <= last do
--{ clock
  if ARGV[at] == "0" then now, at = ARGV[at + 1] + 0, at + 2; expire() end
--}
--{ calls
  while ARGV[at] == "19" do at = run_of_descriptors(at) end
  if at > last then break end
--}
  local number, plain = ARGV[at] + 0, nil
  if number < 0 then number, plain = -number, next_key end
  local width = 0
--{ priority
  if number > 999 then number, width = number - 1000, 2 end
--}
  local count = number % 10
  local requests = (number - count) / 10
  if plain then next_key = plain + requests * count end
  width = plain and 1 or width + (requests > 1 and 7 or 6)
--{ several
--{ calls
  if not plain and ARGV[at + 4] == "7" then run_of_several(at + 1, requests, count, plain, width) else
--}
  if count > 1 then run_of_several(at + 1, requests, count, plain, width) else
--}
--{ many
  local limit = limits[ARGV[at + 1]]
--}
  local run, period, offset = limit.run, limit.period, limit.offset
  local key, cost, mode, amount, burst, step = plain, 1, 0, limit.amount, limit.burst, 1
  if not plain then
    key, cost, mode, amount, burst, step = unpack(ARGV, at + 2, at + 7)
    key, cost, mode, amount, burst, step = key + 0, cost + 0, mode + 0, amount + 0, burst + 0, requests > 1 and step + 0 or 0
--{ priority
    if width > 7 and ARGV[at + width - 1] ~= "0" then run = leaving(run, ARGV[at + width - 1] + 0, ARGV[at + width] + 0) end
--}
  end
--{ numbers
  numbers[1] = amount == limit.amount and burst == limit.burst and limit.numbers or nil
--}
--{ dedup
  local memory
  if mode > 7 and cost >= 0 then memory, mode = (mode - mode % 8) / 8, mode % 4 end
--}
  for _ = 1, requests do
    local state = states[key] or nil
--{ own
    if type(state) == "number" then state = text_of(state) end
--}
--{ dedup
    local granted, remaining, _, reset, memo
    if memory then granted, remaining, _, reset, memo = answered(states[memory]) end
    if memo then
      states[memory] = memo
      write(KEYS[memory], memo, reset, true)
      reply[filled + 1], reply[filled + 2], reply[filled + 3], reply[filled + 4], reply[filled + 5] = granted, remaining, 1, reset, 0
      filled = filled + 5
--{ next
      if limit.next then filled = filled + 1; reply[filled] = reset end
--}
    else
--}
    local granted, remaining, retry_after, reset, new_state, delay, needed, lasts, next_unit = run(state, now, amount, period, burst, cost, mode, offset
--{ options
      , unpack(limit.options or {})
--}
    )
    if plain and granted == 1 and retry_after == 0 and (not delay or delay == 0) then
      reply[filled + 1] = remaining
      reply[filled + 2] = reset
      filled = filled + 2
    else
      if plain then filled = filled + 1; reply[filled] = -1 end
      reply[filled + 1], reply[filled + 2], reply[filled + 3], reply[filled + 4], reply[filled + 5] =
        granted, remaining, retry_after, reset, delay or 0
      filled = filled + 5
    end
--{ next
    if limit.next then filled = filled + 1; reply[filled] = next_unit or reset end
--}
    if new_state then
      lasts = lasts or reset
      local ends = now + lasts
--{ clock
      if margin > 0 then needed = nil end
--}
      if needed and lasts > 0 and needed - needed % SLOT == ends - ends % SLOT and #new_state == #state then
        call("SETRANGE", KEYS[key], "0", new_state)            -- as in write(), without the call
      else
        write(KEYS[key], new_state, lasts, limit.exact, state, needed)
      end
      states[key] = lasts > 0 and new_state
--{ dedup
      if memory and granted ~= 0 and reset > 0 then
        states[memory] = remembered(limit, granted, remaining, reset)
        write(KEYS[memory], states[memory], reset, true)
      end
--}
    end
--{ dedup
    end
--}
    key = key + step
  end
--{ several
  end
--{ calls
  end
--}
--}
  at = at + 1 + count * width
end

-- Step 7: the time of all charges ends the reply. Redis converts a table at the price of ten texts,
-- so the usual reply without load is packed: of one plain run of one request with one limit.
if last == 2 and filled == 2 then return struct.pack("<i8i8i8", reply[1], reply[2], now) end
--{ next
if last == 2 and filled == 3 then return struct.pack("<i8i8i8i8", reply[1], reply[2], reply[3], now) end
--}
reply[filled + 1], reply[filled + 2] = now, nil             -- nil: Redis stops reading here
return reply
