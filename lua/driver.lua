-- The driver: one call for the limits of one request, or of several requests, on keys of one slot.
--
-- It stands below a generated preamble that defines `limits`, an array of { run, period, offset, options }: `run` is the function of
-- a limiter file, `options` an array or nil. The clock is read once, every state once, and every state that changed is written once.
-- A request is charged on all its limits or on none, and the requests of a call see one another's charges in order.
--
-- KEYS   the distinct state keys
-- ARGV   now in µs, or "" for the clock of Redis; then for each request how many limits it has, and for each of these
--        limit (index into `limits`), key (index into KEYS), cost, mode, limit, burst. Where a request has several limits, 4 is
--        added to the mode of one that is only tried: its rejection rejects nothing but itself. 8 times
--        the index of a key is added where that key remembers the answer to a charge: while it does, a repeat is free. A negative
--        cost rejects nothing, and its mode is the time of the charge that it gives back, or 0
-- Reply  for each request, for each of its limits: granted, remaining, retry_after, reset, delay. A limit that rejects has granted 0. In
--        a rejected request the other limits say what they would have granted, and their numbers without the charge. A repeat has the
--        first answer's numbers, and retry_after 1. At the end: now, the time of all that was charged
--
-- A limiter that fails fails the call, with nothing written; those of the operator's own stand in guard.lua, and fail their request.

-- Redis runs all of this for every call. Hence `text + 0`, a number at half the price of tonumber(text); `number .. ""`, a text at
-- half the price of Redis' own conversion; PSETEX, three quarters of SET PX; and no function or table before it is needed.
local call = redis.call

-- Where the caller brings a clock of its own, limiters know by themselves what is over; expiry must only not come too soon.
local now, margin = ARGV[1], 3600000
if now == "" then
  local time = call("TIME")
  now, margin = time[1] * 1000000 + time[2], 0
else
  now = now + 0
end

local states = call("MGET", unpack(KEYS))                   -- also for one: MGET takes a key of another type for none

if #ARGV == 8 and not KEYS[2] then                                          -- one limit of one request
  local limit = limits[ARGV[3] + 0]
  local run, period, offset, options, state = limit.run, limit.period, limit.offset, limit.options, states[1] or nil
  local amount, burst, cost, mode = ARGV[7] + 0, ARGV[8] + 0, ARGV[5] + 0, ARGV[6] + 0
  local granted, remaining, retry_after, reset, new_state, delay
  if options then
    granted, remaining, retry_after, reset, new_state, delay =
      run(state, now, amount, period, burst, cost, mode, offset, unpack(options))
  else
    granted, remaining, retry_after, reset, new_state, delay = run(state, now, amount, period, burst, cost, mode, offset)
  end
  if new_state then
    if reset > 0 then
      local ms = (reset + -reset % 1000) / 1000 + margin
      call("PSETEX", KEYS[1], ms < 1e13 and ms .. "" or "10000000000000", new_state)
    else
      call("DEL", KEYS[1])
    end
  end
  return { granted, remaining, retry_after, reset, delay or 0, now }
end

local ARGV, limits, unpack, type = ARGV, limits, unpack, type

local function ask(limit, state, amount, burst, cost, mode)
  if limit.options then
    return limit.run(state, now, amount, limit.period, burst, cost, mode, limit.offset, unpack(limit.options))
  end
  return limit.run(state, now, amount, limit.period, burst, cost, mode, limit.offset)
end

-- What an earlier charge was answered; nothing where that cannot be read.
local function answered(text)
  local granted, remaining, reset = text:match("^(%d+):(%d+):(%d+)$")
  if granted then return granted + 0, remaining + 0, 1, reset + 0 end
end

local at, last = 2, #ARGV
local reply, filled = { unpack(ARGV, 1, last < 500 and last or 500) }, 0    -- longer than the reply: it need not grow
local resets = {}                                           -- of the keys whose states have changed
local old_keys, old_states, old_resets                      -- what a rejection puts back

while at <= last do
  local count, first, undo, rejected = ARGV[at] + 0, at + 1, 0, false
  if count > 1 and not old_keys then old_keys, old_states, old_resets = {}, {}, {} end
  at = first
  for _ = 1, count do
    local index, key, cost, mode, amount, burst = unpack(ARGV, at, at + 5)
    key, mode, cost = key + 0, mode + 0, cost + 0
    local tried, memory = mode > 3, nil
    if cost < 0 then
      tried = true
    elseif tried then
      if mode > 7 then
        memory, mode = (mode - mode % 8) / 8, mode % 8
        tried = mode > 3
      end
      if tried then mode = mode - 4 end
    end
    local granted, remaining, retry_after, reset, state, delay
    if memory and states[memory] then granted, remaining, retry_after, reset = answered(states[memory]) end
    if not granted then
      granted, remaining, retry_after, reset, state, delay =
        ask(limits[index + 0], states[key] or nil, amount + 0, burst + 0, cost, mode)
    end
    reply[filled + 1], reply[filled + 2], reply[filled + 3], reply[filled + 4], reply[filled + 5] =
      granted, remaining, retry_after, reset, delay or 0
    if granted == 0 then
      rejected = rejected or not tried
    elseif state then
      if count > 1 then
        undo = undo + 1
        old_keys[undo], old_states[undo], old_resets[undo] = key, states[key], resets[key] or false
      end
      if type(state) == "number" then state = string.format("%.17g", state) end
      states[key], resets[key] = reset > 0 and state, reset
      if memory and reset > 0 then
        if count > 1 then
          undo = undo + 1
          old_keys[undo], old_states[undo], old_resets[undo] = memory, states[memory], resets[memory] or false
        end
        states[memory], resets[memory] = string.format("%.0f:%.0f:%.0f", granted, remaining, reset), reset
      end
    end
    at, filled = at + 6, filled + 5
  end

  if rejected and count > 1 then
    for i = undo, 1, -1 do
      local key = old_keys[i]
      states[key], resets[key] = old_states[i], old_resets[i] or nil
    end
    local slot = filled - 5 * count
    for i = first, at - 6, 6 do
      if reply[slot + 1] ~= 0 and reply[slot + 3] ~= 1 then
        local index, key, _, _, amount, burst = unpack(ARGV, i, i + 5)
        local _, remaining, _, reset = ask(limits[index + 0], states[key + 0] or nil, amount + 0, burst + 0, 0, 0)
        reply[slot + 2], reply[slot + 3], reply[slot + 4], reply[slot + 5] = remaining, 0, reset, 0
      end
      slot = slot + 5
    end
  end
end

for key, reset in pairs(resets) do
  if reset > 0 then
    local ms = (reset + -reset % 1000) / 1000 + margin
    call("PSETEX", KEYS[key], ms < 1e13 and ms .. "" or "10000000000000", states[key])
  else
    call("DEL", KEYS[key])
  end
end
reply[filled + 1], reply[filled + 2] = now, nil             -- where Redis stops reading
return reply
