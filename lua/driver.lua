-- The driver: one call for the limits of one request, or of several requests, on keys of one slot.
--
-- The generated preamble above defines `limits`, a table by the index of a limit as text:
--   run      the function of a limiter file
--   period   in µs
--   amount, amount_text, numbers
--            the limit's own number of units, as text too, and "LIMIT:PERIOD:BURST" for limiters
--            that write these numbers into their states; all absent if burst is another number
--   period_text  the period as text, for such limiters
--   offset   in µs, or nil
--   options  an array, or nil
--   exact    whether the state must expire exactly at its reset
--   repeats  how many repeats of a request are free
-- The clock and each state are read once, and every charge is written. A request is charged on all
-- its limits or on none. The requests of a call see each other's charges, in order.
--
-- KEYS   the distinct state keys
-- ARGV   now in µs, or "" for the clock of Redis; then runs of requests that differ only in their
--        keys. If `now` is given, "0" and a later time may come before a run. A run starts with
--        ten times its number of requests, plus the number of limits of each request (1 to 8). For
--        each of these limits follow:
--          limit  index into `limits`
--          key    index into KEYS
--          cost   a negative cost is a refund; it never rejects
--          mode   0 all or nothing, 1 best effort, 2 into debt, 3 renew (concurrency); see below
--          limit  the number of units
--          burst
--          step   only in a run of several requests: what to add to the index of the key for each
--                 next request
--        The mode of a refund is the time of its charge, or 0. In the mode of other costs:
--          + 4      if a request has several limits: the limit is only tried (shadow, enforce). Its
--                   rejection does not reject the request
--          + 8 * i  KEYS[i] stores the answer to a charge. While it does, repeats are free, up to
--                   `repeats`
-- Reply  for each request, for each of its limits: granted, remaining, retry_after, reset, delay;
--        at the end now, the time of all charges. A limit that rejects has granted 0. In a rejected
--        request the other limits report what they would have granted, and their numbers without
--        the charge. A repeat has the first answer's numbers, its reset counted from now, and
--        retry_after 1.
--
-- An error in a limiter fails the call. weir's own limiters raise none. guard.lua wraps custom
-- limiters, so that an error fails only their requests.
--
-- Expiry of keys. A state is needed until now + reset, or until now + the limiter's eighth result.
-- A state of a custom limiter (`exact`) and a stored answer expire exactly then, since their expiry
-- is meaningful. Any other state lives to the end of its SLOT of 4.2 s, plus up to one more SLOT,
-- so that keys do not expire all at once. Some limiters can derive from the old state until when it
-- was needed, and return that time as their seventh result. If a new state ends in the same SLOT,
-- the key's expiry is still sufficient. A write without an expiry costs Redis half.
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
--   several   rules with more than one limit
--   numbers   limiters that write limit, period and burst into their states: numbers[1] is the text
--             "LIMIT:PERIOD:BURST", since formatting numbers is expensive
--
-- Redis runs all of this for every call. So `text + 0` converts to a number at half the price of
-- tonumber(text), and `number .. ""` to a text at half the price of Redis' own conversion. Numbers
-- that are usually the same are compared as text, which is cheaper still. Functions and tables are
-- created only when needed.
local call, ARGV, KEYS, limits, unpack = redis.call, ARGV, KEYS, limits, unpack
local SLOT = 4194304

-- Step 1: the time. If the caller passes its own clock, limiters detect expired states themselves.
-- Keys must only not expire too early.
local now, margin
--{ clock
if ARGV[1] ~= "" then now, margin = ARGV[1] + 0, 3600000 end
--}
if not now then
  local time = call("TIME")
  now, margin = time[1] * 1000000 + time[2], 0
end

-- Step 2: all states. MGET even for one key: it returns nil for a key of another type. From here on
-- `states` holds what the requests of this call have made of them.
local states = call("MGET", unpack(KEYS))

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
  if needed and margin == 0 and needed - needed % SLOT == ends - ends % SLOT then
    if #state == #old then return call("SETRANGE", key, "0", state) end
    return call("SET", key, state, "KEEPTTL")
  end
  -- + 1000, since Redis truncates its clock to ms.
  if not exact then reset = reset + SLOT + 1000 - ends % SLOT + now % 65536 * 64 end
  local ms = (reset + -reset % 1000) / 1000 + margin
--{ own
  if type(state) == "number" then state = text_of(state) end
--}
  call("SET", key, state, "PX", ms < 1e13 and ms .. "" or "10000000000000")
end

-- Step 4: the usual call without load, of one request with one limit. The reply is at its end.
if #ARGV == 8 and not KEYS[2] then
  local _, _, index, _, cost, mode, amount, burst = unpack(ARGV)
  local limit = limits[index]
--{ numbers
  numbers[1] = amount == burst and amount == limit.amount_text and limit.numbers or amount .. ":" .. (limit.period_text or "") .. ":" .. burst
--}
  burst = burst ~= amount and burst + 0
  amount = amount == limit.amount_text and limit.amount or amount + 0
  local state = states[1] or nil
  local granted, remaining, retry_after, reset, new_state, delay, needed, lasts =
    limit.run(state, now, amount, limit.period, burst or amount, cost == "1" and 1 or cost + 0, mode == "0" and 0 or mode + 0, limit.offset
--{ options
              , unpack(limit.options or {})
--}
             )
  if new_state then
    lasts = lasts or reset
    local ends = now + lasts
    if needed and lasts > 0 and needed - needed % 4194304 == ends - ends % 4194304 and #new_state == #state and margin == 0 then
      call("SETRANGE", KEYS[1], "0", new_state)                -- as in write(), without the call
    else
      write(KEYS[1], new_state, lasts, limit.exact, state, needed)
    end
  end
  return { granted, remaining, retry_after, reset, delay or 0, now }
end

-- Step 5: the reply of all others, of its size: growing a table allocates it again.
local reply, filled = { ("0"):rep(5 * math.min(#KEYS, 200) + 6):byte(1, -1) }, 0

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

-- Step 6: requests with several limits.
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
--{ numbers
  numbers[1] = one.numbers
--}
--{ options
  if limit.options then
    return limit.run(state, now, amount, limit.period, burst, cost, mode, limit.offset, unpack(limit.options))
  end
--}
  return limit.run(state, now, amount, limit.period, burst, cost, mode, limit.offset)
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

-- Runs one limit of one request and fills in its part of the reply. Returns true if it rejects the
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
  if cost >= 0 and tried then mode = mode - 4 end
  local granted, remaining, retry_after, reset, state, delay, needed, lasts
--{ dedup
  if memory then granted, remaining, retry_after, reset, memo = answered(states[memory]) end
  if memo then
    change(memory, memo, reset, true)
  else
--}
    granted, remaining, retry_after, reset, state, delay, needed, lasts = ask(one, state_of(key), cost, mode)
--{ dedup
  end
--}
  reply[filled + 1], reply[filled + 2], reply[filled + 3], reply[filled + 4], reply[filled + 5] =
    granted, remaining, retry_after, reset, delay or 0
  filled = filled + 5
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
  local slot = filled - 5 * #wanted
  for i = 1, #wanted do
    if reply[slot + 1] ~= 0 and reply[slot + 3] ~= 1 then
      local one = wanted[i]
      local _, remaining, _, reset, state, _, needed, lasts = ask(one, state_of(one.key), 0, 0)
      if state then renumber(one.key, state, lasts or reset, one.limit.exact, needed) end
      reply[slot + 2], reply[slot + 3], reply[slot + 4], reply[slot + 5] = remaining, 0, reset, 0
    end
    slot = slot + 5
  end
end

local function run_of_several(at, requests, count)
  local wanted, width = {}, requests > 1 and 7 or 6
  for i = 1, count do
    local index, key, cost, mode, amount, burst, step = unpack(ARGV, at + 1 + (i - 1) * width, at + i * width)
    local limit = limits[index]
    wanted[i] = { limit = limit, key = key + 0, cost = cost + 0, mode = mode + 0, amount = amount + 0, burst = burst + 0, step = (step or 0) + 0,
                  numbers = amount .. ":" .. (limit.period_text or "") .. ":" .. burst }
  end
  if not keys then           -- of the usual size, since growing a table allocates it again
    keys, olds, news, resets, exacts, neededs =
      { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }
  end
  for _ = 1, requests do
    local rejected = false
    changed = 0
    for i = 1, count do rejected = decide(wanted[i]) or rejected end
    if rejected then put_back(wanted) else write_changes() end
    for i = 1, count do wanted[i].key = wanted[i].key + wanted[i].step end
  end
end
--}

-- Step 7: all runs. Requests with one limit are decided and written one after the other, here.
local at, last = 2, #ARGV
while at <= last do
--{ clock
  if ARGV[at] == "0" then now, at = ARGV[at + 1] + 0, at + 2 end
--}
  local requests, count = 1, 1
  if ARGV[at] ~= "11" then
    count = ARGV[at] % 10
    requests = (ARGV[at] - count) / 10
  end
--{ several
  if count > 1 then run_of_several(at, requests, count) else
--}
  local index, key, cost, mode, amount, burst, step = unpack(ARGV, at + 1, at + 7)
  local limit = limits[index]
  local run, period, offset = limit.run, limit.period, limit.offset
--{ numbers
  numbers[1] = amount == burst and amount == limit.amount_text and limit.numbers or amount .. ":" .. (limit.period_text or "") .. ":" .. burst
--}
  burst = burst ~= amount and burst + 0
  amount = amount == limit.amount_text and limit.amount or amount + 0
  burst, key, cost, mode = burst or amount, key == "1" and 1 or key + 0, cost == "1" and 1 or cost + 0, mode == "0" and 0 or mode + 0
  step = requests > 1 and (step == "1" and 1 or step + 0) or 0
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
    else
--}
    local granted, remaining, retry_after, reset, new_state, delay, needed, lasts = run(state, now, amount, period, burst, cost, mode, offset
--{ options
      , unpack(limit.options or {})
--}
    )
    reply[filled + 1] = granted
    reply[filled + 2] = remaining
    reply[filled + 3] = retry_after
    reply[filled + 4] = reset
    reply[filled + 5] = delay or 0
    if new_state then
      lasts = lasts or reset
      local ends = now + lasts
      if needed and lasts > 0 and needed - needed % 4194304 == ends - ends % 4194304 and #new_state == #state and margin == 0 then
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
    filled = filled + 5
    key = key + step
  end
--{ several
  end
--}
  at = at + 1 + count * (requests > 1 and 7 or 6)
end

-- Step 8: the time of all charges ends the reply.
reply[filled + 1], reply[filled + 2] = now, nil             -- nil: Redis stops reading here
return reply
