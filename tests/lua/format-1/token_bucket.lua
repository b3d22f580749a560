-- Token bucket.
--
-- Definition  A bucket holds up to `burst` tokens, full at first; `limit` tokens arrive per `period`, evenly; what does not fit
--             is lost. A request takes `cost` tokens or is rejected.
-- Guarantee   In any stretch of t µs at most burst + t * limit / period units are admitted.
-- Source      J. S. Turner, "New directions in communications (or which way to the information age?)", IEEE Communications
--             Magazine 24(10), 1986; RFC 2697, section 3, for the bucket that is filled continuously.
--
-- Units: µs, whole tokens. Nothing is rounded, so nothing drifts: the state says how many whole tokens were missing, and at which
-- instant, which is always one at which a token arrived (or the first was taken). Such an instant is since + part/limit µs, as
-- limit tokens take period µs; where limit divides period, part is always 0.
--
-- State: "MISSING:SINCE:PART:FULL"; MISSING is negative where the bucket is in debt (mode 2), FULL is when it would be full by the
-- numbers of then.
-- What is missing is kept when the numbers change: a raised burst is there at once, a lowered one leaves an empty bucket.

-- "%d" is twice as fast, and right where numbers of C are wide enough.
local FORMAT = ("%d"):format(9007199254740991) == "9007199254740991" and "%d:%d:%d:%d" or "%.0f:%.0f:%.0f:%.0f"

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

-- What is missing, but no more than comes back in 2^52 µs, 142 years: a greater debt is as good as one of that.
local function bounded(missing, limit, period, burst)
  local most = muldiv(4503599627370496, limit, period)
  if most > 4503599627370496 then most = 4503599627370496 end
  if most < burst then most = burst end
  return missing < most and missing or most
end

-- µs from `since` until so many more tokens have arrived, rounded up.
local function arrival(tokens, limit, period, part)
  local us, rest = muldiv(tokens, period, limit)
  return us + (rest + part + -(rest + part) % limit) / limit
end

return function(state, now, limit, period, burst, cost, mode)
  if limit < 1 then return cost < 0 and cost or 0, 0, cost < 0 and 0 or -1, 0 end

  local missing, since, part, needed = 0, now, 0, nil
  if state then
    local m, s, p, f = state:match("^(-?%d+):(%d+):(%d+):(%d+)$")
    if m then
      needed = f + 0
      missing, since, part = m + 0, s + 0, p + 0
      if missing < 0 then missing = bounded(-missing, limit, period, burst) elseif missing > burst then missing = burst end
      if part >= limit then since, part = since + 1, 0 end
      if now > since then
        local arrived, rest = muldiv(now - since, limit, period)
        arrived = arrived + (rest - part - (rest - part) % period) / period
        if arrived >= missing then
          missing, since, part = 0, now, 0
        elseif arrived > 0 then
          missing = missing - arrived
          local us, over = muldiv(arrived, period, limit)
          since, part = since + us, part + over
          if part >= limit then since, part = since + 1, part - limit end
        end
      end
    end
  end

  local left, granted, retry_after, changed = burst - missing, 0, 0, true
  if cost < 0 then
    granted, changed = cost, missing > 0
    missing = missing + cost
    if missing < 0 then missing = 0 end
  elseif cost == 0 then
    changed = false
    if left >= 1 then granted = 1 end
  else
    if left >= cost or mode == 2 then
      granted = cost
    elseif mode == 1 and left >= 1 then
      granted = left
    end
    missing, changed = missing + granted, granted > 0
    if missing > burst then missing = bounded(missing, limit, period, burst) end
  end

  if granted == 0 then
    local least = (cost == 0 or mode == 1) and 1 or cost
    retry_after = least > burst and -1 or since - now + arrival(least - left, limit, period, part)
  end
  local reset = missing > 0 and since - now + arrival(missing, limit, period, part) or 0
  local remaining = burst - missing
  if remaining < 0 then remaining = 0 end
  if not changed then return granted, remaining, retry_after, reset end

  if missing > burst then missing = -missing end
  return granted, remaining, retry_after, reset, FORMAT:format(missing, since, part, now + reset), nil, needed
end
