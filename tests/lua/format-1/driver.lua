-- The driver: one call for the limits of one request, or of several requests, on keys of one slot.
--
-- It stands below a generated preamble that defines `limits`, an array of { run, period, offset, options, exact }: `run` is the function of
-- a limiter file, `options` an array or nil. The clock is read once, every state once, and every charge is written.
-- A request is charged on all its limits or on none, and the requests of a call see one another's charges in order.
--
-- KEYS   the distinct state keys
-- ARGV   now in µs, or "" for the clock of Redis; then runs of requests that differ in their keys alone: ten times how many requests, plus how
--        many limits each has (1 to 8); and for each of these
--        limit (index into `limits`), key (index into KEYS), cost, mode, limit, burst and, in a run of several, how much higher the index of
--        the key is with each next request. Where a request has several limits, 4 is
--        added to the mode of one that is only tried: its rejection rejects nothing but itself. 8 times
--        the index of a key is added where that key remembers the answer to a charge: while it does, a repeat is free. A negative
--        cost rejects nothing, and its mode is the time of the charge that it gives back, or 0
-- Reply  for each request, for each of its limits: granted, remaining, retry_after, reset, delay. A limit that rejects has granted 0. In
--        a rejected request the other limits say what they would have granted, and their numbers without the charge. A repeat has the
--        first answer's numbers, and retry_after 1. At the end: now, the time of all that was charged
--
-- A limiter that fails fails the call; none of weir's does; those of the operator's own stand in guard.lua, and fail their request.
--
-- How long a key lives. A state is needed until now + reset. One of an own limiter (`exact`), and a remembered answer, live for just so long: that they
-- end has a meaning there. Any other lives to the end of its SLOT of time at least, and up to one more, so that not all end at once.
-- A limiter that can tell from a state alone until when it was needed says so, as its last value: while a new
-- state ends in the same slot, its key lives long enough as it is, and to write without an expiry costs Redis half.

-- Redis runs all of this for every call. Hence `text + 0`, a number at half the price of tonumber(text); `number .. ""`, a text at
-- half the price of Redis' own conversion; and no function or table before it is needed.
-- The composer of today gives limits by the text of their index.
local by_text = limits
local limits = setmetatable({}, { __index = function(_, index) return by_text[tostring(index)] end })

-- weir of today sends plain runs (see lua/driver.lua). They are written as other runs here, and -1 is put before each of their answers.
-- An answer of a limit with `next` ends with its reset once more, since the limiters here return no other time.
local sent, ARGV, is_plain, has_next = ARGV, { "" }, {}, {}
do
  local at, next_key = 1, 1
  if sent[1] == "" or sent[1] + 0 > 0 then ARGV[1], at = sent[1], 2 end
  while at <= #sent do
    local header = math.abs(sent[at])
    local plain, count = sent[at] + 0 < 0, header % 10
    local requests = (header - count) / 10
    local width = plain and 1 or requests > 1 and 7 or 6
    ARGV[#ARGV + 1] = ("%d"):format(header)
    for i = 1, count * width do
      ARGV[#ARGV + 1] = sent[at + i]
      if plain then
        local limit = by_text[sent[at + i]]
        for _, number in ipairs { next_key + i - 1, 1, 0, limit.amount, limit.burst, requests > 1 and count or nil } do
          ARGV[#ARGV + 1] = ("%.0f"):format(number)
        end
      end
    end
    for i = 0, requests * count - 1 do
      is_plain[#is_plain + 1] = plain
      has_next[#is_plain] = by_text[sent[at + 1 + i % count * width]].next
    end
    if plain then next_key = next_key + requests * count end
    at = at + 1 + count * width
  end
end

local function as_of_today(reply)
  local all = {}
  for i = 1, #is_plain do
    if is_plain[i] then all[#all + 1] = -1 end
    for j = 5 * i - 4, 5 * i do all[#all + 1] = reply[j] end
    if has_next[i] then all[#all + 1] = reply[5 * i - 1] end
  end
  all[#all + 1] = reply[5 * #is_plain + 1]
  return all
end

local call = redis.call
local SLOT = 4194304

-- Where the caller brings a clock of its own, limiters know by themselves what is over; expiry must only not come too soon.
local now, margin = ARGV[1], 3600000
if now == "" then
  local time = call("TIME")
  now, margin = time[1] * 1000000 + time[2], 0
else
  now = now + 0
end

local states = call("MGET", unpack(KEYS))                   -- also for one: MGET takes a key of another type for none

local function text_of(number)
  local text = ("%d"):format(number)                        -- twice as fast, and right where Redis is one of 64 bits and it is whole
  return text + 0 == number and text or ("%.17g"):format(number)
end

-- Writes a state in place of `old`, which was needed until `needed` (nil: nobody knows).
local function write(key, state, reset, exact, old, needed)
  local ends = now + reset
  if reset <= 0 then return call("DEL", key) end
  if needed and margin == 0 and needed - needed % SLOT == ends - ends % SLOT then
    if type(state) == "string" then
      if type(old) == "string" and #state == #old then return call("SETRANGE", key, "0", state) end
      return call("SET", key, state, "KEEPTTL")
    end
    local more = state - needed                             -- a state that is a number is the time until which it is needed
    if more < 1e14 and more > -1e14 and type(redis.pcall("INCRBY", key, more .. "")) == "number" then return end
  end
  if not exact then reset = reset + SLOT + 1000 - ends % SLOT + now % 65536 * 64 end            -- Redis cuts its clock to ms
  local ms = (reset + -reset % 1000) / 1000 + margin
  call("SET", key, type(state) == "number" and text_of(state) or state, "PX", ms < 1e13 and ms .. "" or "10000000000000")
end

if #ARGV == 8 and not KEYS[2] then                                          -- one limit of one request
  local limit = limits[ARGV[3] + 0]
  local run, period, offset, options, state = limit.run, limit.period, limit.offset, limit.options, states[1] or nil
  local amount, burst, cost, mode = ARGV[7] + 0, ARGV[8] + 0, ARGV[5] + 0, ARGV[6] + 0
  local granted, remaining, retry_after, reset, new_state, delay, needed
  if options then
    granted, remaining, retry_after, reset, new_state, delay, needed =
      run(state, now, amount, period, burst, cost, mode, offset, unpack(options))
  else
    granted, remaining, retry_after, reset, new_state, delay, needed = run(state, now, amount, period, burst, cost, mode, offset)
  end
  if new_state then write(KEYS[1], new_state, reset, limit.exact, state, needed) end
  return as_of_today { granted, remaining, retry_after, reset, delay or 0, now }
end

local ARGV, KEYS, limits, unpack, states = ARGV, KEYS, limits, unpack, states

local function ask(limit, state, amount, burst, cost, mode)
  if limit.options then
    return limit.run(state, now, amount, limit.period, burst, cost, mode, limit.offset, unpack(limit.options))
  end
  return limit.run(state, now, amount, limit.period, burst, cost, mode, limit.offset)
end

-- The state under a key, by now.
local function state_of(key)
  local state = states[key] or nil
  return type(state) == "number" and text_of(state) or state
end

-- What an earlier charge was answered; nothing where that cannot be read.
local function answered(text)
  local granted, remaining, reset = text:match("^(%d+):(%d+):(%d+)$")
  if granted then return granted + 0, remaining + 0, 1, reset + 0 end
end

local at, last = 2, #ARGV
local reply, filled = nil, 0                                -- as long as the reply, mostly: it need not grow
if KEYS[4] then
  reply = { ("0"):rep(5 * #KEYS + 1):byte(1, -1) }
else
  reply = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
end

-- Requests of one limit: each is written as it is charged.
local function run_of_one(requests)
  local index, key, cost, mode, amount, burst, step = unpack(ARGV, at + 1, at + (requests > 1 and 7 or 6))
  local limit, memory = limits[index + 0], nil
  key, cost, mode, amount, burst, step = key + 0, cost + 0, mode + 0, amount + 0, burst + 0, (step or 0) + 0
  if mode > 7 and cost >= 0 then memory, mode = (mode - mode % 8) / 8, mode % 4 end
  for _ = 1, requests do
    local state, granted, remaining, retry_after, reset, new_state, delay, needed = state_of(key), nil, nil, nil, nil, nil, nil, nil
    if memory and states[memory] then granted, remaining, retry_after, reset = answered(states[memory]) end
    if not granted then
      granted, remaining, retry_after, reset, new_state, delay, needed = ask(limit, state, amount, burst, cost, mode)
    end
    reply[filled + 1], reply[filled + 2], reply[filled + 3], reply[filled + 4], reply[filled + 5] =
      granted, remaining, retry_after, reset, delay or 0
    filled = filled + 5
    if new_state and granted ~= 0 then
      write(KEYS[key], new_state, reset, limit.exact, state, needed)
      states[key] = reset > 0 and new_state
      if memory and reset > 0 then
        states[memory] = ("%.0f:%.0f:%.0f"):format(granted, remaining, reset)
        write(KEYS[memory], states[memory], reset, true)
      end
    end
    key = key + step
  end
end

-- Requests of several limits: each is written when none of its limits has rejected it. What it has changed until then, in order:
local changed, keys, olds, news, resets, exacts, neededs = 0, nil, nil, nil, nil, nil, nil

local function change(key, state, reset, exact, needed)
  changed = changed + 1
  keys[changed], olds[changed], news[changed], resets[changed], exacts[changed], neededs[changed] =
    key, states[key], state, reset, exact or false, needed or false
  states[key] = reset > 0 and state
end

local function write_changes()
  for i = 1, changed do write(KEYS[keys[i]], news[i], resets[i], exacts[i], olds[i], neededs[i]) end
end

-- Asks one limit of one request, and fills in its part of the reply. True: it rejects the request.
local function decide(index, key, cost, mode, amount, burst)
  local tried, memory, limit = mode > 3, nil, limits[index]
  if cost < 0 then
    tried = true
  elseif tried then
    if mode > 7 then
      memory, mode = (mode - mode % 8) / 8, mode % 8
      tried = mode > 3
    end
    if tried then mode = mode - 4 end
  end
  local granted, remaining, retry_after, reset, state, delay, needed
  if memory and states[memory] then granted, remaining, retry_after, reset = answered(states[memory]) end
  if not granted then
    granted, remaining, retry_after, reset, state, delay, needed = ask(limit, state_of(key), amount, burst, cost, mode)
  end
  reply[filled + 1], reply[filled + 2], reply[filled + 3], reply[filled + 4], reply[filled + 5] =
    granted, remaining, retry_after, reset, delay or 0
  filled = filled + 5
  if granted == 0 then return not tried end
  if state then
    change(key, state, reset, limit.exact, needed)
    if memory and reset > 0 then
      change(memory, ("%.0f:%.0f:%.0f"):format(granted, remaining, reset), reset, true)
    end
  end
end

-- A request was rejected: nothing is charged, and the other limits say what they would have granted.
local function put_back(count, wanted)
  for i = changed, 1, -1 do states[keys[i]] = olds[i] end
  local slot = filled - 5 * count
  for i = 1, count do
    if reply[slot + 1] ~= 0 and reply[slot + 3] ~= 1 then
      local one = wanted[i]
      local _, remaining, _, reset = ask(limits[one[1]], state_of(one[2]), one[5], one[6], 0, 0)
      reply[slot + 2], reply[slot + 3], reply[slot + 4], reply[slot + 5] = remaining, 0, reset, 0
    end
    slot = slot + 5
  end
end

local function run_of_several(requests, count)
  local wanted, width = { 0, 0, 0, 0 }, requests > 1 and 7 or 6
  for i = 1, count do
    local index, key, cost, mode, amount, burst, step = unpack(ARGV, at + 1 + (i - 1) * width, at + i * width)
    wanted[i] = { index + 0, key + 0, cost + 0, mode + 0, amount + 0, burst + 0, (step or 0) + 0 }
  end
  if not keys then                                          -- of the size that most need: a table that grows is made anew each time
    keys, olds, news, resets, exacts, neededs =
      { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }
  end
  for _ = 1, requests do
    local rejected = false
    changed = 0
    for i = 1, count do
      local one = wanted[i]
      local key = one[2]
      rejected = decide(one[1], key, one[3], one[4], one[5], one[6]) or rejected
    end
    if rejected then put_back(count, wanted) else write_changes() end
    for i = 1, count do
      local one = wanted[i]
      one[2] = one[2] + one[7]
    end
  end
end

while at <= last do
  local count = ARGV[at] % 10
  local requests = (ARGV[at] - count) / 10
  if count == 1 then run_of_one(requests) else run_of_several(requests, count) end
  at = at + 1 + count * (requests > 1 and 7 or 6)
end

reply[filled + 1], reply[filled + 2] = now, nil             -- where Redis stops reading
return as_of_today(reply)
