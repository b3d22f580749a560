-- Rolling window of buckets.
--
-- Definition  Admitted units are counted in buckets. A bucket opens with the first unit that no
--             open bucket accepts. It is open for period / buckets µs and counts until one `period`
--             after its newest unit. A request is admitted if the units of the counting buckets and
--             its cost together do not exceed the limit.
-- Guarantee   Never more than the limit in any interval [t, t + period), wherever it starts. A unit
--             counts up to period / buckets longer than necessary, as if the period were up to
--             1 + 1 / buckets times as long.
-- Source      The sliding window log, with merged entries. Compare the circular buffers of time
--             buckets in stream processors.
--
-- The ninth result is the time until the oldest units leave, which makes more units available. A
-- refund does not return it.
--
-- Units: µs. A refund subtracts from the bucket of its charge, and has no effect after one period.
-- If the time of the charge is unknown, it subtracts from the newest units first. If the clock goes
-- back, time stands still until the clock has caught up with the newest unit.
--
-- State: binary, big-endian
--   5 bytes   the count before the first bucket
--   12 bytes  per bucket, oldest first: the time of its newest unit (7 bytes) and the running count
--             of admitted units up to it (5 bytes, modulo 2^40)
--   7 bytes   the time at which the newest bucket opened
-- There are at most buckets + 2 buckets, and only expired buckets are scanned. The first bucket is
-- a marker: its time is the period, and it has no units. It shows when the period has changed.
-- Earlier versions without the marker read it as an expired bucket. The count follows
-- from the times alone. A request with a new period rewrites the state so that the expiry of its
-- key fits.

local WRAP = 1099511627776     -- 2^40
local EMPTY, NEVER = "\0\0\0\0\0", "\0\0\0\0\0\0\0"

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

-- Encodes a bucket (12 bytes) or, without a count, only the time (7 bytes).
local function entry(time, count)
  local a = time % 256; time = (time - a) / 256
  local b = time % 256; time = (time - b) / 256
  local c = time % 256; time = (time - c) / 256
  local d = time % 256; time = (time - d) / 256
  local e = time % 256; time = (time - e) / 256
  local f = time % 256; time = (time - f) / 256
  if not count then return string.char(time, f, e, d, c, b, a) end
  local g = count % 256; count = (count - g) / 256
  local h = count % 256; count = (count - h) / 256
  local i = count % 256; count = (count - i) / 256
  local j = count % 256; count = (count - j) / 256
  return string.char(time, f, e, d, c, b, a, count, j, i, h, g)
end

-- Refunds up to `units` of the charge at `time` (0: of the newest units). Returns the number of
-- refunded units, the new state and the time of its newest bucket. If no units are left, it returns
-- only the number.
local function give_back(state, first, newest, base, time, units)
  local since, i = state:sub(-7), newest
  if time == 0 then
    local left = (count_at(state, newest) - base) % WRAP - units
    if left <= 0 then return units + left end
    i = first
    while (count_at(state, i) - base) % WRAP < left do i = i + 1 end
    -- The opening time of an older bucket is not stored, so it accepts no more units.
    return units, state:sub(12 * first - 11, 12 * i - 7) .. entry(time_at(state, i), (base + left) % WRAP)
                  .. (i == newest and since or NEVER), time_at(state, i)
  end
  i = first
  while i < newest and time_at(state, i) < time do i = i + 1 end
  if time_at(state, i) < time or i == newest and time < time_at(state, newest + 1) then return 0 end
  local there = (count_at(state, i) - count_at(state, i - 1)) % WRAP
  if units > there then units = there end
  local parts, last = { state:sub(12 * first - 11, 12 * i - 7) }, newest
  for j = units < there and i or i + 1, newest do
    parts[#parts + 1] = entry(time_at(state, j), (count_at(state, j) - units) % WRAP)
  end
  if i == newest and units == there then
    if newest == first then return units end
    last, since = newest - 1, NEVER
  end
  return units, table.concat(parts) .. since, time_at(state, last)
end

-- Returns the first bucket up to which at least `units` units count. The newest bucket must do.
local function reaches(state, first, base, units)
  local i = first
  while (count_at(state, i) - base) % WRAP < units do i = i + 1 end
  return i
end

return function(state, now, limit, period, burst, cost, mode, offset, buckets)
  if period ~= mark_period then make_mark(period) end
  local first, newest, last, base, used, gone = 1, 0, 0, 0, 0
  if state and #state > 12 and #state % 12 == 0 then
    newest = #state / 12 - 1
    last = time_at(state, newest)
    gone = (last > now and last or now) - period
    if last <= gone or last >= 9007199254740992 then
      newest = 0
    else
      while time_at(state, first) <= gone do first = first + 1 end
      base = count_at(state, first - 1)
      used = (count_at(state, newest) - base) % WRAP
    end
  end

  if cost < 0 then
    local back, kept, newest_left = 0
    if used > 0 and (mode == 0 or mode > gone) then
      back, kept, newest_left = give_back(state, first, newest, base, mode, -cost)
    end
    local left = limit - used + back
    if left < 0 then left = 0 end
    if back == 0 then return cost, left, 0, used > 0 and last + period - now or 0 end
    if not kept then return cost, limit, 0, 0, EMPTY end
    return cost, left, 0, newest_left + period - now, marked(kept)
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
                    or time_at(state, reaches(state, first, base, used + least - limit)) + period - now
    end
    if used == 0 then return granted, left, retry_after, 0, nil, nil, nil, nil, 0 end
    local adapted = state:sub(6, 12) ~= mark and marked(state:sub(12 * first - 11)) or nil
    local leaves = reaches(state, first, base, left < 0 and 1 - left or 1)
    return granted, left > 0 and left or 0, retry_after, last + period - now, adapted, nil, nil, nil,
           time_at(state, leaves) + period - now
  end

  local before = used
  used = used + granted
  if used >= WRAP then used = WRAP - 1 end
  local head, time, since
  if newest == 0 then
    time, head = now, EMPTY
  else
    time = last > now and last or now
    if time < time_at(state, newest + 1) + period / (buckets or 10) or time == last then
      head, since = state:sub(12 * first - 11, 12 * newest - 7), state:sub(-7)
    else
      head = state:sub(12 * first - 11, -8)
    end
  end
  left = limit - used
  local least, leaves = left < 0 and 1 - left or 1, time
  if before >= least then
    local i = reaches(state, first, base, least)
    if i < newest or not since then leaves = time_at(state, i) end
  end
  return granted, left > 0 and left or 0, 0, time + period - now,
         marked(head .. entry(time, (base + used) % WRAP) .. (since or entry(time))), nil, nil, nil, leaves + period - now
end
