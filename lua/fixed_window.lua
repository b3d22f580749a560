-- Fixed window.
--
-- Definition  At most `limit` units are admitted per window of `period`. With an offset, windows
--             are aligned to the clock: they start at offset + k * period. Without one, a window
--             starts at the first request after the last window has ended.
-- Guarantee   Never more than the limit in one window. Hence never more than twice the limit in any
--             interval of one period, and only across the boundary of two windows.
-- Source      Common practice; e.g. the Redis documentation of INCR, "Pattern: Rate limiter".
--
-- Units: µs. A charge of an earlier window is not refunded.
--
-- State: "SINCE:USED:END", in all versions
--   SINCE  a time in the window in which USED was counted: its start or, with an offset, the time
--          of the last charge
--   USED   units admitted
--   END    the end of the window by the numbers of that charge
--
-- If the period has changed, usage of a window that has not ended by the old period counts as usage
-- of the current window by the new period. The first request with the new numbers rewrites the
-- state in them, even if it is rejected.

return function(state, now, limit, period, burst, cost, mode, offset)
  local since, used, start, adapted, needed = now, 0, nil, false, nil
  local s, u, e, counted
  if state then
    s, u, e = state:match("^(%d+):(%d+):(%d+)$")
    if s then
      needed, counted = e + 0, s + 0
      if now < needed then
        since, used = counted, u + 0
        start = offset and since - (since - offset) % period or since
        if now - start >= period then
          if offset then
            since, start = now, nil
          else
            start = now - (now - start) % period
            since = start
          end
        end
      end
    end
  end
  if not start then start = offset and now - (now - offset) % period or now end
  if needed and used > 0 and (needed ~= start + period or since ~= counted) then adapted = true end

  local left, granted, retry_after, changed = limit - used, 0, 0, true
  if cost < 0 then
    granted, changed = cost, used > 0 and (mode == 0 or mode >= start)
    if changed then used = used > -cost and used + cost or 0 end
  elseif cost == 0 then
    changed = false
    if left >= 1 then granted = 1 end
  else
    if left >= cost or mode == 2 then
      granted = cost
    elseif mode == 1 and left >= 1 then
      granted = left
    end
    used, changed = used + granted, granted > 0
    if used > 9007199254740991 then used = 9007199254740991 end     -- the maximum debt
  end

  local ends = start + period - now
  if granted == 0 then
    retry_after = ((cost == 0 or mode == 1) and 1 or cost) > limit and -1 or ends
  end
  local remaining = limit - used
  if remaining < 0 then remaining = 0 end
  local reset = used > 0 and ends or 0
  if not changed and not adapted then return granted, remaining, retry_after, reset end
  -- A refund of a charge with other numbers leaves the state in its own numbers.
  if cost < 0 and needed ~= start + period then
    local lasts = used > 0 and now < needed and needed - now or 0
    return granted, remaining, retry_after, lasts, ("%s:%.0f:%s"):format(s, used, e), nil, needed
  end
  if offset and now > since then since = now end
  if needed == now + ends and used < 1e14 and counted == since then
    return granted, remaining, retry_after, reset, s .. ":" .. used .. ":" .. e, nil, needed
  end
  return granted, remaining, retry_after, reset, ("%.0f:%.0f:%.0f"):format(since, used, now + ends), nil, needed
end
