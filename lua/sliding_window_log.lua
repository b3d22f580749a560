-- Sliding window log.
--
-- Definition  The time of every admitted unit is stored for one `period`. A request is admitted if
--             the units of the last period (now - period, now] and its cost together do not exceed
--             the limit.
-- Guarantee   Never more than the limit in any interval [t, t + period), wherever it starts.
-- Source      The definition of a rate limit itself. Commonly built on a Redis sorted set that is
--             trimmed and counted.
--
-- The ninth result is the time until the oldest units leave, which makes more units available. A
-- refund does not return it.
--
-- Units: µs. A refund subtracts the units charged at its time. If that time is unknown, it
-- subtracts the newest units first. If the clock goes back, time stands still until the clock has
-- caught up with the newest entry. Charges made in between are not refunded.
--
-- State: binary, big-endian
--   5 bytes   the count before the first entry
--   12 bytes  per entry, oldest first: a time (7 bytes) and the running count of admitted units up
--             to it (5 bytes, modulo 2^40)
--   refunds   if entries before the newest have refunds: a second log of the same form, by the time
--             of the charge, and its number of entries (12 bytes)
-- So the number of units between two entries is one subtraction, and searches are bisections. A
-- request of any cost takes one entry, and requests of the same µs share an entry without loss.
-- With the second log, a refund does not rewrite later entries. An entry and its refund expire
-- together.
--
-- The first entry is a marker: its time is the period, and it has no units. It shows when the
-- period has changed. Earlier versions without the marker read it as an expired entry.
-- The count follows from the times alone. A request with a new period rewrites the state so that
-- the expiry of its key fits.

local WRAP = 1099511627776     -- 2^40
local EMPTY = "\0\0\0\0\0"

local mark, mark_period        -- the period as seven bytes, and the period it was made from

local function make_mark(period)
  local rest, bytes = period, {}
  for i = 7, 1, -1 do
    bytes[i] = rest % 256
    rest = (rest - bytes[i]) / 256
  end
  mark, mark_period = string.char(unpack(bytes)), period
end

-- Returns the state with the period's entry in front: an expired entry with the count before the
-- first.
local function marked(state)
  return state:sub(1, 5) .. mark .. state
end

local function time_at(state, i)
  local a, b, c, d, e, f, g = state:byte(12 * i - 6, 12 * i)
  return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
end

local function count_at(state, i)
  local a, b, c, d, e = state:byte(12 * i + 1, 12 * i + 5)
  return (((a * 256 + b) * 256 + c) * 256 + d) * 256 + e
end

local function entry(time, count)
  local a = time % 256; time = (time - a) / 256
  local b = time % 256; time = (time - b) / 256
  local c = time % 256; time = (time - c) / 256
  local d = time % 256; time = (time - d) / 256
  local e = time % 256; time = (time - e) / 256
  local f = time % 256; time = (time - f) / 256
  local g = count % 256; count = (count - g) / 256
  local h = count % 256; count = (count - h) / 256
  local i = count % 256; count = (count - i) / 256
  local j = count % 256; count = (count - j) / 256
  return string.char(time, f, e, d, c, b, a, count, j, i, h, g)
end

-- Returns the first entry later than `time`. The last entry must be later.
local function later(state, entries, time)
  local low, high = 1, entries
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    if time_at(state, middle) > time then high = middle else low = middle + 1 end
  end
  return low
end

-- Returns the number of refunded units of the entries up to `time`.
local function returned_until(back, time)
  if not back or time_at(back.log, back.first) > time then return 0 end
  local i = back.entries
  if time_at(back.log, i) > time then i = later(back.log, i, time) - 1 end
  return (count_at(back.log, i) - back.base) % WRAP
end

-- Returns the number of units up to entry i that still count.
local function counting(state, i, base, back)
  local units = (count_at(state, i) - base) % WRAP
  return back and units - returned_until(back, time_at(state, i)) or units
end

-- Returns the first entry from `low` on up to which at least `units` units count. The last entry
-- must qualify.
local function reaches(state, low, entries, base, back, units)
  local high = entries
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    if counting(state, middle, base, back) >= units then high = middle else low = middle + 1 end
  end
  return low
end

-- The same, but fast for one unit, which is usually in the first entry.
local function oldest(state, low, entries, base, back, units)
  if units == 1 and not back then return low end
  return reaches(state, low, entries, base, back, units)
end

-- Encodes the second log without its expired entries and those later than `time`.
local function kept(back, time)
  if not back or time_at(back.log, back.first) > time then return "" end
  local i = back.entries
  if time_at(back.log, i) > time then i = later(back.log, i, time) - 1 end
  return back.log:sub(12 * back.first - 11, 12 * i + 5) .. entry(0, i - back.first + 1)
end

-- Encodes the second log with `units` more at `time`.
local function returning(back, time, units)
  if not back then return EMPTY .. entry(time, units) .. entry(0, 1) end
  local log, i = back.log, back.entries + 1
  while i > back.first and time_at(log, i - 1) >= time do i = i - 1 end
  local there = i <= back.entries and time_at(log, i) == time
  local parts = { log:sub(12 * back.first - 11, 12 * i - 7), entry(time, (count_at(log, there and i or i - 1) + units) % WRAP) }
  for j = there and i + 1 or i, back.entries do
    parts[#parts + 1] = entry(time_at(log, j), (count_at(log, j) + units) % WRAP)
  end
  parts[#parts + 1] = entry(0, back.entries - back.first + (there and 1 or 2))
  return table.concat(parts)
end

-- Reads the second log, which starts at byte `from` of the state. Returns nil if all of it has
-- expired.
local function read_returned(state, from, entries, gone)
  local back = { log = state:sub(from, -13), entries = entries, first = 1 }
  if time_at(back.log, entries) <= gone then return nil end
  if time_at(back.log, 1) <= gone then back.first = later(back.log, entries, gone) end
  back.base = count_at(back.log, back.first - 1)
  back.units = (count_at(back.log, entries) - back.base) % WRAP
  return back
end

return function(state, now, limit, period, burst, cost, mode)
  if period ~= mark_period then make_mark(period) end
  local first, entries, last, base, used, gone, back = 1, 0, 0, 0, 0
  local size = state and #state or 0
  if size % 12 == 10 and size > 34 then       -- with a second log at its end
    back = count_at(state:sub(-5), 0)
    size = size - 17 - 12 * back
    if back == 0 or size < 17 then size, back = 0, nil end
  end
  if size > 5 and size % 12 == 5 then
    entries = (size - 5) / 12
    last = time_at(state, entries)
    gone = (last > now and last or now) - period
    if last <= gone or last >= 9007199254740992 then
      entries = 0
    else
      if time_at(state, 1) <= gone then first = later(state, entries, gone) end
      base = count_at(state, first - 1)
      used = (count_at(state, entries) - base) % WRAP
      back = back and read_returned(state, size + 1, back, gone)
      if back then used = used > back.units and used - back.units or 0 end
    end
  end
  if entries == 0 then back = nil end

  if cost < 0 then
    local units = used < -cost and used or -cost
    local i = entries
    if mode > 0 and units > 0 then
      i = mode > gone and mode <= last and later(state, entries, mode - 1)
      if not i or time_at(state, i) ~= mode then
        units = 0
      else
        local there = counting(state, i, base, back) - (i > first and counting(state, i - 1, base, back) or 0)
        if units > there then units = there end
      end
    end
    used = used - units
    local left = used < limit and limit - used or 0
    if units == 0 then return cost, left, 0, used > 0 and last + period - now or 0 end
    if used == 0 then return cost, limit, 0, 0, EMPTY end
    if i < entries then
      return cost, left, 0, last + period - now, marked(state:sub(12 * first - 11, size) .. returning(back, mode, units))
    end
    i = reaches(state, first, entries, base, back, used)      -- newer entries are removed
    local time = time_at(state, i)
    return cost, left, 0, time + period - now,
           marked(state:sub(12 * first - 11, 12 * i - 7) .. entry(time, (base + used + returned_until(back, time)) % WRAP) .. kept(back, time))
  end

  local left, granted = limit - used, 0
  if cost > 0 then
    if left >= cost or mode == 2 then
      granted = cost
    elseif mode == 1 and left >= 1 then
      granted = left
    end
  elseif left >= 1 then
    granted = 1
  end

  if granted == 0 or cost == 0 then           -- nothing changes
    local retry_after = 0
    if granted == 0 then
      local least = (cost == 0 or mode == 1) and 1 or cost
      retry_after = least > limit and -1
                    or time_at(state, reaches(state, first, entries, base, back, used + least - limit)) + period - now
    end
    if used == 0 then return granted, left, retry_after, 0, nil, nil, nil, nil, 0 end
    local adapted = state:sub(6, 12) ~= mark and marked(state:sub(12 * first - 11)) or nil
    local leaves = oldest(state, first, entries, base, back, left < 0 and 1 - left or 1)
    return granted, left > 0 and left or 0, retry_after, last + period - now, adapted, nil, nil, nil,
           time_at(state, leaves) + period - now
  end

  local before = used
  used = used + granted
  left = limit - used
  local least = left < 0 and 1 - left or 1
  local leaves = before >= least and time_at(state, oldest(state, first, entries, base, back, least))
  local head, time = EMPTY, now
  if entries > 0 then
    -- The same µs, or the clock went back.
    if last >= now then time, entries = last, entries - 1 end
    head = state:sub(12 * first - 11, 12 * entries + 5)
  end
  local count = used + (back and back.units or 0)
  if count >= WRAP then count = WRAP - 1 end
  return granted, left > 0 and left or 0, 0, time + period - now,
         marked(head .. entry(time, (base + count) % WRAP) .. (back and kept(back, time) or "")), nil, nil, nil,
         (leaves or time) + period - now
end
