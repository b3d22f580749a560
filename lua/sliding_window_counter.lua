-- Sliding window counter.
--
-- Definition  Units are counted in windows of `period`. At a time `elapsed` into a window, the
--             weighted count is
--                 current + previous * (period - elapsed) / period
--             as if the units of the previous window had arrived evenly. A request is admitted if
--             the weighted count and its cost together do not exceed the limit. With an offset,
--             windows are aligned to the clock. Without one, the first window starts at the first
--             request.
-- Guarantee   The weighted count never exceeds the limit. If the units of the previous window were
--             not even, an interval of one period can hold more than the limit, but less than twice
--             it.
-- Source      J. Desgats, "How we built rate limiting capable of scaling to millions of domains",
--             Cloudflare, 2017.
--
-- Units: µs. The weight is exact: counts and limit are integers, so current + cost + weight <=
-- limit holds exactly if it holds for the weight rounded up. A refund subtracts from the window of
-- its charge. If the time of the charge is unknown, it subtracts from the newest units first.
--
-- State: "SINCE:CURRENT:PREVIOUS"
--   SINCE     a time in the current window: its start or, with an offset, the time of the last
--             charge
--   CURRENT   units of the current window
--   PREVIOUS  units of the previous window
-- Leading zeros encode the period, to one part in 390: z zeros before SINCE, y before CURRENT and x
-- before PREVIOUS stand for 2^((z + 23 * y + 529 * x - 1) / 270) µs. Earlier versions write no
-- zeros and read only the three numbers, so that a fourth number is not possible.
--
-- If the period has changed, the weighted count by the old period counts as usage of the current
-- window by the new period. The first request with the new numbers rewrites the state in them, even
-- if it is rejected.

-- Returns quotient and remainder of a * b / c, exact for c < 2^45 even if a * b exceeds 2^53 (the
-- bound of exact integers in doubles).
local function muldiv(a, b, c)
  local product = a * b
  if product < 9007199254740992 then
    local remainder = product % c
    return (product - remainder) / c, remainder
  end
  local rest = b % c
  local whole, quotient, remainder, unit = a * ((b - rest) / c), 0, 0, 1
  while unit * 128 <= a do unit = unit * 128 end
  repeat               -- long multiplication and division, one base-128 digit of a at a time
    local tail = a % unit
    local sum = remainder * 128 + (a - tail) / unit * rest
    remainder = sum % c
    quotient = quotient * 128 + (sum - remainder) / c
    a, unit = tail, unit / 128
  until unit < 1
  return whole + quotient, remainder
end

local zeros, zeros_period      -- the code of this period: z + 23 * y + 529 * x
local FORMAT

local function make_zeros(period)
  zeros_period, zeros = period, 1 + math.floor(270 * math.log(period) / math.log(2))
  local z, y = zeros % 23, (zeros - zeros % 23) / 23
  y = y % 23
  local x = (zeros - z - 23 * y) / 529
  FORMAT = ("0"):rep(z) .. "%.0f:" .. ("0"):rep(y) .. "%.0f:" .. ("0"):rep(x) .. "%.0f"
end

local function zeros_of(digits) return (digits:find("[^0]") or #digits) - 1 end

-- Returns the earliest time into a window at which `previous` units of the window before weigh at
-- most `room`, 0 <= room < previous.
local function fades(previous, room, period)
  return period - (muldiv(room, period, previous))
end

-- Returns the weighted count at a time `elapsed` into a window of an earlier period, which is given
-- by its `code`. Rounded up.
local function counting(elapsed, current, previous, code)
  local period = math.ceil(2 ^ (code / 270))
  if elapsed >= 2 * period then return 0 end
  if elapsed < 0 then elapsed = 0 end
  if elapsed >= period then return math.ceil(current * (2 * period - elapsed) / period) end
  return current + math.ceil(previous * (period - elapsed) / period)
end

return function(state, now, limit, period, burst, cost, mode, offset)
  if period ~= zeros_period then make_zeros(period) end
  local since, current, previous, start, adapted = now, 0, 0, nil, false
  if state then
    local s, c, p = state:match("^(%d+):(%d+):(%d+)$")
    if s then
      since, current, previous = s + 0, c + 0, p + 0
      local code = zeros_of(s) + 23 * zeros_of(c) + 529 * zeros_of(p)
      if code ~= zeros and code > 0 then
        current, previous = counting(now - since, current, previous, code), 0
        adapted = current > 0
        if offset then since = now elseif now - since >= period then since = now - (now - since) % period end
      end
      start = offset and since - (since - offset) % period or since
      if now - start >= period then
        if current == 0 or now - start >= 2 * period then
          since, current, previous, start = now, 0, 0, nil
        else
          start = start + period
          since, current, previous = start, 0, current
        end
      end
    end
  end
  if not start then start = offset and now - (now - offset) % period or now end

  local elapsed, weight = now - start, previous
  if elapsed > 0 and previous > 0 then   -- if the clock went back, the whole previous window counts
    local units, rest = muldiv(previous, period - elapsed, period)
    weight = rest > 0 and units + 1 or units
  end

  local left, granted, retry_after, changed = limit - current - weight, 0, 0, true
  if cost < 0 then
    local newer, older = 0, 0
    if mode == 0 or mode >= start then newer = current < -cost and current or -cost end
    if mode == 0 then older = -cost - newer elseif mode < start and mode >= start - period then older = -cost end
    if older > previous then older = previous end
    granted, changed = cost, newer + older > 0
    current, previous = current - newer, previous - older
    if older > 0 then
      local units, rest = muldiv(previous, elapsed > 0 and period - elapsed or period, period)
      weight = rest > 0 and units + 1 or units
    end
  elseif cost == 0 then
    changed = false
    if left >= 1 then granted = 1 end
  else
    if left >= cost or mode == 2 then
      granted = cost
    elseif mode == 1 and left >= 1 then
      granted = left
    end
    current, changed = current + granted, granted > 0
  end

  if granted == 0 then
    local least = (cost == 0 or mode == 1) and 1 or cost
    if least > limit then
      retry_after = -1
    elseif current + least <= limit then
      retry_after = start + fades(previous, limit - current - least, period) - now
    else
      retry_after = start + period + fades(current, limit - least, period) - now
    end
  end
  local remaining = limit - current - weight
  if remaining < 0 then remaining = 0 end
  local reset = current > 0 and start + 2 * period - now or previous > 0 and start + period - now or 0
  if not changed and not adapted then return granted, remaining, retry_after, reset end
  if offset and now > since then since = now end
  return granted, remaining, retry_after, reset, FORMAT:format(since, current, previous)
end
