-- Sliding window counter.
--
-- Definition  Units are counted in windows of `period`. What counts at a time `elapsed` into a window is
--                 current + previous * (period - elapsed) / period
--             as if the units of the window before had come evenly; a request is admitted if that and its cost do not exceed the
--             limit. With an offset, windows lie on the clock; without one the first starts at the first request.
-- Guarantee   The weighted count never exceeds the limit. If the window before was in truth not even, a stretch of one period can hold
--             more than the limit, by less than the limit's worth.
-- Source      J. Desgats, "How we built rate limiting capable of scaling to millions of domains", Cloudflare, 2017.
--
-- Units: µs. The weight is not rounded: counts and limit being integers, current + cost + weight <= limit holds exactly when it
-- holds for the weight's next integer above. Giving back takes from the window of the charge; where that is not known, from the newest
-- units first.
--
-- State: "SINCE:CURRENT:PREVIOUS". SINCE lies in the current window: its start, or, on the clock, the time of the last charge.

-- a * b / c: quotient and remainder, exact for c < 2^45 even where a * b is not (doubles hold integers below 2^53).
local function muldiv(a, b, c)
  local product = a * b
  if product < 9007199254740992 then
    local remainder = product % c
    return (product - remainder) / c, remainder
  end
  local rest = b % c
  local whole, quotient, remainder, unit = a * ((b - rest) / c), 0, 0, 1
  while unit * 128 <= a do unit = unit * 128 end
  repeat                                     -- long multiplication and division, one base-128 digit of a at a time
    local tail = a % unit
    local sum = remainder * 128 + (a - tail) / unit * rest
    remainder = sum % c
    quotient = quotient * 128 + (sum - remainder) / c
    a, unit = tail, unit / 128
  until unit < 1
  return whole + quotient, remainder
end

-- The earliest time into a window at which `previous` units of the one before weigh no more than `room`, 0 <= room < previous.
local function fades(previous, room, period)
  return period - (muldiv(room, period, previous))
end

return function(state, now, limit, period, burst, cost, mode, offset)
  local since, current, previous, start = now, 0, 0
  if state then
    local s, c, p = state:match("^(%d+):(%d+):(%d+)$")
    if s then
      since, current, previous = s + 0, c + 0, p + 0
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
  if elapsed > 0 and previous > 0 then                      -- else the clock went back: nothing has faded
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
  if not changed then return granted, remaining, retry_after, reset end
  if offset and now > since then since = now end
  return granted, remaining, retry_after, reset, ("%.0f:%.0f:%.0f"):format(since, current, previous)
end
