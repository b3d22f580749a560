-- Lockout: a fixed window that ends with a rest.
--
-- Definition  A period starts with the first unit after the last period, or rest, has ended. At
--             most `limit` units are admitted in it. If all of them are used, a `rest` starts with
--             the last admitted unit. No unit is admitted until rest and period have ended.
-- Guarantee   Never more than `limit` units in one period, and none during a rest. Rejected
--             requests do not prolong a rest, since a limiter changes nothing on a rejection.
-- Source      Account lockout: NIST SP 800-63B, section 5.2.2 (rate limiting of failed
--             authentication); the duration of login locks in PAM's pam_faillock(8).
--
-- Units: µs. `rest` is the limiter's option (default: period). A refund subtracts from the period
-- of its charge. If it makes units available during a rest, the rest ends. A charge into debt
-- during a rest restarts the rest.
--
-- State: "SINCE:USED:LAST:END"
--   SINCE  the time of the period's first unit
--   USED   units charged since
--   LAST   the time of the last charge
--   END    the end of the period or of the rest, by the numbers of the last write
--
-- If the numbers have changed before END, used units stay used. By the new numbers the client rests
-- since LAST if all units are used, else the period ends `period` after SINCE. The first request
-- with the new numbers rewrites the state in them, even if it is rejected.

return function(state, now, limit, period, burst, cost, mode, offset, rest)
  local since, used, last, needed = now, 0, now, nil
  if state then
    local s, u, l, e = state:match("^(%d+):(%d+):(%d+):(%d+)$")
    if s then
      needed = e + 0
      if now < needed then since, used, last = s + 0, u + 0, l + 0 end
    end
  end

  local function ending()
    local ends = since + period
    if used < limit then return ends end
    local rested = last + (rest or period)
    return rested > ends and rested or ends
  end
  local adapted = used > 0 and needed ~= ending()
  if used > 0 and now >= ending() then since, used, last = now, 0, now end

  local left, granted, changed = limit - used, 0, true
  if cost < 0 then
    granted, changed = cost, used > 0 and (mode == 0 or mode >= since)
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
    if changed and now > last then last = now end
  end

  local ends, retry_after = ending(), 0
  if used == 0 or ends <= now then used, ends = 0, now end
  if granted == 0 then
    retry_after = ((cost == 0 or mode == 1) and 1 or cost) > limit and -1 or ends - now
  end
  local remaining = used < limit and limit - used or 0
  if not changed and not adapted then return granted, remaining, retry_after, ends - now end
  return granted, remaining, retry_after, ends - now, ("%.0f:%.0f:%.0f:%.0f"):format(since, used, last, ends), nil, needed
end
