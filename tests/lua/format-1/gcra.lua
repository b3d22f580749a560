-- Generic cell rate algorithm (virtual scheduling).
--
-- Definition  Units are due every period/limit µs. The theoretical arrival time (TAT) is when the next one is due; each unit moves it
--             on by period/limit from itself or from now, whichever is later. A request is admitted if that leaves it no more than
--             burst * period / limit ahead of now.
-- Guarantee   In any stretch of t µs at most burst + t * limit / period units are admitted: the token bucket's, from one integer.
-- Source      ITU-T Recommendation I.371, annex A; ATM Forum, Traffic Management Specification 4.1, section 4.4.2.
--
-- Units: µs. The emission interval is not rounded: TAT is at + part/limit µs, and part is 0 wherever limit divides period.
--
-- State: TAT, a number, or "TAT:PART". It is a time and not a count, so a change of the numbers keeps the time that is owed:
-- a client that had used half of its burst's time has used that much time of the new one.

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

return function(state, now, limit, period, burst, cost, mode)
  if limit < 1 then return cost < 0 and cost or 0, 0, cost < 0 and 0 or -1, 0 end

  -- TAT - now, never below zero; and how many units of the burst that is, rounded up.
  local ahead, part, used, needed = 0, 0, 0, nil
  if state then
    local at = tonumber(state)
    if not at then
      local a, p = state:match("^(%d+):(%d+)[:%d]*$")
      at, part = tonumber(a), tonumber(p) or 0
    end
    if at then needed = part > 0 and at + 1 or at end
    if at and at >= now and at < 9007199254740992 then
      ahead = at - now
      if part >= limit then ahead, part = ahead + 1, 0 end
      local units, rest = muldiv(ahead, limit, period)
      used = units + (rest + part + -(rest + part) % period) / period
    else
      part = 0
    end
  end

  local left, granted, retry_after = burst - used, 0, 0
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

  local changed = false
  if granted == 0 then
    local least = (cost == 0 or mode == 1) and 1 or cost
    if least > burst then
      retry_after = -1
    else
      local us, rest = muldiv(burst - least, period, limit)
      retry_after = ahead - us + (part > rest and 1 or 0)
    end
  elseif cost > 0 then
    local us, rest = muldiv(granted, period, limit)
    ahead, part, changed = ahead + us, part + rest, true
    if part >= limit then ahead, part = ahead + 1, part - limit end
    if ahead > 4503599627370496 then ahead = 4503599627370496 end      -- a debt of more than 2^52 µs, 142 years, is as good as one of that
    left = left - granted
  elseif cost < 0 and used > 0 then
    local us, rest = muldiv(-cost, period, limit)
    ahead, part, changed = ahead - us, part - rest, true
    if part < 0 then ahead, part = ahead - 1, part + limit end
    left = left - cost
    if ahead < 0 then ahead, part, left = 0, 0, burst end
  end

  local remaining = left < 0 and 0 or left
  local reset = part > 0 and ahead + 1 or ahead
  if not changed then return granted, remaining, retry_after, reset end
  if part > 0 then
    return granted, remaining, retry_after, reset, ("%.0f:%.0f"):format(now + ahead, part), nil, needed
  end
  return granted, remaining, retry_after, reset, now + ahead, nil, needed
end
