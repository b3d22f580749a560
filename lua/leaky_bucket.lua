-- Leaky bucket, as a meter or as a queue.
--
-- Definition  A bucket of `burst` units leaks `limit` units per `period`, evenly. A request pours in `cost` units; one that would make
--             it overflow is rejected.
--             As a meter (max_delay 0 or absent) what fits passes at once.
--             As a queue (max_delay in µs) a request passes when all that was in the bucket before it has leaked out, and one
--             that would wait longer than max_delay is rejected: requests leave no closer than the rate.
-- Guarantee   As a meter, in any stretch of t µs at most burst + t * limit / period units are admitted. As a queue, after a request
--             of n units has been let go the next one is let go no sooner than n * period / limit µs later.
-- Source      J. S. Turner, "New directions in communications (or which way to the information age?)", IEEE Communications
--             Magazine 24(10), 1986 (the meter); A. S. Tanenbaum, "Computer Networks", traffic shaping (the queue).
--
-- Units: µs. Nothing is rounded but a delay, up to the next µs: the bucket is empty at the instant at + part/limit µs, and part is 0
-- wherever limit divides period.
--
-- State: "AT", an integer, or "AT:PART": the time at which the bucket will be empty. It is kept when the numbers change, since
-- those who wait in the queue have been told when to go.

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

return function(state, now, limit, period, burst, cost, mode, offset, max_delay)
  if limit < 1 then return cost < 0 and cost or 0, 0, cost < 0 and 0 or -1, 0 end

  -- How long the bucket takes to leak empty; what is in it, in units, rounded up; how long a request that comes now would wait.
  local drain, part, level = 0, 0, 0
  if state then
    local at = tonumber(state)
    if not at then
      local a, p = state:match("^(%d+):(%d+)$")
      at, part = tonumber(a), tonumber(p) or 0
    end
    if at and at >= now and at < 9007199254740992 then
      drain = at - now
      if part >= limit then drain, part = drain + 1, 0 end
      local units, rest = muldiv(drain, limit, period)
      level = units + (rest + part + -(rest + part) % period) / period
    else
      part = 0
    end
  end
  local wait = part > 0 and drain + 1 or drain
  if not max_delay or max_delay <= 0 then max_delay = nil end

  local room = burst - level
  local open = (max_delay and wait > max_delay) and 0 or room
  local granted, retry_after, changed = 0, 0, false
  if cost > 0 then
    if open >= cost or mode == 2 then
      granted = cost
    elseif mode == 1 and open >= 1 then
      granted = open
    end
  elseif cost < 0 then
    granted = cost
  elseif open >= 1 then
    granted = 1
  end

  if granted == 0 then
    local least = (cost == 0 or mode == 1) and 1 or cost
    if least > burst then
      retry_after = -1
    else
      local us, rest = muldiv(burst - least, period, limit)
      retry_after = drain - us + (part > rest and 1 or 0)
      if max_delay and retry_after < wait - max_delay then retry_after = wait - max_delay end
    end
  elseif cost > 0 then
    local us, rest = muldiv(granted, period, limit)
    drain, part, room, changed = drain + us, part + rest, room - granted, true
    if part >= limit then drain, part = drain + 1, part - limit end
    if drain > 4503599627370496 then drain = 4503599627370496 end      -- a debt of more than 2^52 µs, 142 years, is as good as one of that
  elseif cost < 0 and level > 0 then
    local us, rest = muldiv(-cost, period, limit)
    drain, part, room, changed = drain - us, part - rest, room - cost, true
    if part < 0 then drain, part = drain - 1, part + limit end
    if drain < 0 then drain, part, room = 0, 0, burst end
  end

  local reset = part > 0 and drain + 1 or drain
  local remaining = (room < 0 or max_delay and reset > max_delay) and 0 or room
  if not changed then return granted, remaining, retry_after, reset end

  local delay = max_delay and cost > 0 and (wait < max_delay and wait or max_delay) or nil
  if part > 0 then
    return granted, remaining, retry_after, reset, ("%.0f:%.0f"):format(now + drain, part), delay
  end
  return granted, remaining, retry_after, reset, ("%.0f"):format(now + drain), delay
end
