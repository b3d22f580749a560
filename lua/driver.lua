-- The driver: one call for the limits of one request, or of several requests, on keys of one slot.
--
-- It stands below a generated preamble that defines `limits`, an array of { run, period, offset, options }: `run` is the function of
-- a limiter file, `options` an array or nil. The clock is read once, every state once, and every state that changed is written once.
-- A request is charged on all its limits or on none, and the requests of a call see one another's charges in order.
--
-- KEYS   the distinct state keys
-- ARGV   now in µs, or "" for the clock of Redis; then for each request how many limits it has, and for each of these
--        limit (index into `limits`), key (index into KEYS), cost, mode, limit, burst
-- Reply  for each request, for each of its limits: granted, remaining, retry_after, reset, delay. A limit that rejects has granted 0. In
--        a rejected request the other limits say what they would have granted, and their numbers without the charge.
--
-- A limiter that fails fails the call, with nothing written.

local KEYS, ARGV, call, tonumber, type = KEYS, ARGV, redis.call, tonumber, type

local now, margin = tonumber(ARGV[1]), 0
if now then
  margin = 3600000         -- another clock than Redis': limiters know by themselves what is over, expiry must only not come too soon
else
  local time = call("TIME")
  now = time[1] * 1000000 + time[2]
end

local states
if #KEYS == 1 then
  states = { call("GET", KEYS[1]) }
else
  states = call("MGET", unpack(KEYS))
end

local resets = {}                                           -- of the keys whose states have changed
local old_states, old_resets, old_keys = {}, {}, {}         -- what a rejection puts back
local reply, filled = {}, 0

local function ask(limit, key, cost, mode, amount, burst)
  local run, period, options, state = limit.run, limit.period, limit.options, states[key]
  if type(state) == "number" then state = string.format("%.17g", state) end
  if options then
    return run(state or nil, now, amount, period, burst, cost, mode, limit.offset, unpack(options))
  end
  return run(state or nil, now, amount, period, burst, cost, mode, limit.offset)
end

local at, last = 2, #ARGV
while at <= last do
  local count = tonumber(ARGV[at])
  local begin, undo, rejected = at + 1, 0, false
  at = begin
  for _ = 1, count do
    local key = tonumber(ARGV[at + 1])
    local granted, remaining, retry_after, reset, state, delay =
      ask(limits[tonumber(ARGV[at])], key, tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]))
    reply[filled + 1], reply[filled + 2], reply[filled + 3], reply[filled + 4], reply[filled + 5] =
      granted, remaining, retry_after, reset, delay or 0
    if granted == 0 then
      rejected = true
    elseif state then
      if count > 1 then
        undo = undo + 1
        old_keys[undo], old_states[undo], old_resets[undo] = key, states[key], resets[key] or false
      end
      states[key], resets[key] = state, reset
    end
    at, filled = at + 6, filled + 5
  end

  if rejected and count > 1 then
    for i = undo, 1, -1 do
      local key = old_keys[i]
      states[key], resets[key] = old_states[i], old_resets[i] or nil
    end
    local slot = filled - 5 * count
    for i = begin, at - 6, 6 do
      if reply[slot + 1] ~= 0 then
        local _, remaining, _, reset =
          ask(limits[tonumber(ARGV[i])], tonumber(ARGV[i + 1]), 0, 0, tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]))
        reply[slot + 2], reply[slot + 3], reply[slot + 4], reply[slot + 5] = remaining, 0, reset, 0
      end
      slot = slot + 5
    end
  end
end

for key, reset in pairs(resets) do
  if reset > 0 then
    local ms = math.ceil(reset / 1000) + margin
    call("SET", KEYS[key], states[key], "PX", ms < 1e14 and ms or 1e14)
  else
    call("DEL", KEYS[key])
  end
end

return reply
