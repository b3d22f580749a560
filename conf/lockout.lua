-- lockout - an example of a limiter of one's own: so many in a period, and who uses up the last of them rests.
--
--   login: { script: ./lockout.lua, limit: 5, period: 1m, options: { rest: 15m } }
--
-- Definition  A period starts with the first unit after the last period, or rest, has ended; at most `limit` units are admitted
--             in it. With the last of them a rest starts, in which nothing is admitted.
-- State       "ENDS:USED": when the period or the rest ends, in us since 1970, and how many units were admitted.
--
-- `weir check` tries it before it is let near traffic; what the arguments and results mean: weir.yaml(5), LIMITER SCRIPTS.

return function(state, now, limit, period, burst, cost, mode, offset, rest)
  local ends, used = now + period, 0
  if state then
    local e, u = state:match("^(%d+):(%d+)$")
    e, u = tonumber(e), tonumber(u)
    if e and now < e and e < 2 ^ 53 and u < 2 ^ 53 then ends, used = e, u end
  end
  local left = math.max(0, limit - used)

  local granted = cost
  if cost == 0 then
    granted = math.min(left, 1)                        -- a look
  elseif cost > left and mode == 0 then
    granted = 0
  elseif cost > left and mode == 1 then
    granted = left                                     -- best effort; mode 2 charges into debt
  end

  if granted == 0 or cost == 0 then                    -- a rejection or a look: nothing changes
    local least = (cost == 0 or mode == 1) and 1 or cost
    local retry_after = granted > 0 and 0 or least > limit and -1 or ends - now
    return granted, left, retry_after, used > 0 and ends - now or 0
  end

  used = math.max(0, used + granted)
  if used >= limit then
    ends = now + (rest or period)
  elseif granted < 0 then                              -- given back: no rest any more
    ends = math.min(ends, now + period)
  end
  return granted, math.max(0, limit - used), 0, used > 0 and ends - now or 0, string.format("%.0f:%.0f", ends, used)
end
