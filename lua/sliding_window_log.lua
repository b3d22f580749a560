-- Sliding window log.
--
-- Definition  The time of every admitted unit is remembered for one `period`; a request is admitted if the units of the last period
--             (now - period, now] and its cost together do not exceed the limit.
-- Guarantee   Never more than the limit in any stretch [t, t + period), wherever it starts.
-- Source      The definition of a rate limit itself; commonly built on a Redis sorted set that is trimmed and counted.
--
-- Units: µs. Giving back takes from the newest units first: those that the request at hand has just been charged. Where the clock
-- goes back, time stands still until it has caught up with the newest entry.
--
-- State: five bytes, then twelve bytes per entry, oldest first; numbers are big-endian. An entry is a time (seven bytes) and how many
-- units had been admitted with it, counted from long ago (five bytes, modulo 2^40); the first five bytes are that count before the
-- first entry. So the units between two entries are one subtraction, a request of any cost takes one entry, requests of one µs
-- share an entry and lose nothing, and whatever is looked for is found by bisection.

local WRAP = 1099511627776                                                                    -- 2^40
local EMPTY = "\0\0\0\0\0"

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

-- The first entry later than `time`; the last one is known to be.
local function later(state, entries, time)
  local low, high = 1, entries
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    if time_at(state, middle) > time then high = middle else low = middle + 1 end
  end
  return low
end

-- The first entry from `low` on by which `units` or more had been admitted after the count `base`; the last one is known to be.
local function reaches(state, low, entries, base, units)
  local high = entries
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    if (count_at(state, middle) - base) % WRAP >= units then high = middle else low = middle + 1 end
  end
  return low
end

return function(state, now, limit, period, burst, cost, mode)
  local first, entries, last, base, used = 1, 0, 0, 0, 0
  if state and #state > 5 and (#state - 5) % 12 == 0 then
    entries = (#state - 5) / 12
    last = time_at(state, entries)
    local gone = (last > now and last or now) - period
    if last <= gone or last >= 9007199254740992 then
      entries = 0
    else
      if time_at(state, 1) <= gone then first = later(state, entries, gone) end
      base = count_at(state, first - 1)
      used = (count_at(state, entries) - base) % WRAP
    end
  end

  local left, granted = limit - used, 0
  if cost > 0 then
    if left >= cost or mode == 2 then
      granted = cost
    elseif mode == 1 and left >= 1 then
      granted = left
    end
  elseif cost < 0 then
    granted = cost
  elseif left >= 1 then
    granted = 1
  end

  if granted == 0 or cost == 0 or cost < 0 and used == 0 then         -- nothing changes
    local retry_after = 0
    if granted == 0 then
      local least = (cost == 0 or mode == 1) and 1 or cost
      retry_after = least > limit and -1
                    or time_at(state, reaches(state, first, entries, base, used + least - limit)) + period - now
    end
    return granted, left > 0 and left or 0, retry_after, used > 0 and last + period - now or 0
  end

  used = used + granted
  if used <= 0 then return granted, limit, 0, 0, EMPTY end
  if used >= WRAP then used = WRAP - 1 end
  local head, time
  if cost < 0 then                                                    -- all newer than what is left goes
    entries = reaches(state, first, entries, base, used)
    time = time_at(state, entries)
    head = state:sub(12 * first - 11, 12 * entries - 7)
  elseif entries == 0 then
    time, head = now, EMPTY
  elseif last >= now then                                             -- the same µs, or the clock went back
    time = last
    head = state:sub(12 * first - 11, 12 * entries - 7)
  else
    time = now
    head = state:sub(12 * first - 11)
  end
  left = limit - used
  return granted, left > 0 and left or 0, 0, time + period - now, head .. entry(time, (base + used) % WRAP)
end
