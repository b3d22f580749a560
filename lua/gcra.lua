-- Generic cell rate algorithm (GCRA), virtual scheduling.
--
-- Definition  The emission interval T is period/limit µs. The theoretical arrival time (TAT) is the
--             time at which the next unit is due. Each admitted unit sets TAT to max(TAT, now) + T.
--             A request is admitted if its new TAT is at most burst * T after now.
-- Guarantee   At most burst + t * limit / period units are admitted in any interval of t µs. This
--             is the guarantee of the token bucket, from a single integer.
-- Source      ITU-T Recommendation I.371, annex A. ATM Forum, Traffic Management Specification 4.1,
--             section 4.4.2.
--
-- Units: µs. The emission interval is not rounded: TAT is at + part/limit µs. part is 0 if limit
-- divides period.
--
-- State: "AT:PART:02:LIMIT:PERIOD:BURST", then ":SLACK:0" if SLACK is not 0
--   AT, PART              the TAT, plus SLACK
--   02                    the version of this format
--   LIMIT, PERIOD, BURST  the numbers by which AT is counted
--   SLACK                 µs by which AT is later than the TAT that decides. A smaller burst hides
--                         the usage beyond it. AT keeps counting all units, so that a larger burst
--                         restores them (clients of several plans may share a key).
--
-- Refunds: a bucket that has been full since a charge holds nothing of that charge. With mode -T, a
-- negative cost has no effect from the time T on: the time of its charge plus the reset after it.
--
-- If the numbers have changed, the number of used units stays the same. If it is more than the new
-- burst, the units beyond it are hidden (SLACK). A debt stays visible: the units that were used
-- beyond the old burst. The first request with the new numbers rewrites the state in them, even if
-- it is rejected.
--
-- Earlier versions wrote "AT" or "AT:PART", counted by the current numbers, and ignore the rest.

local muldiv, numbers = ...    -- muldiv.lua; numbers[1]: the end of a state with the current numbers, if the driver passes it

-- Reads a state with other numbers, a fraction of a µs or slack. Returns AT (rounded up), how far
-- the TAT is ahead of now, part, slack, and whether the numbers have changed; nothing if it is
-- unreadable. The helpers are local to this function, so that the common case does not create them.
local function read_other(state, now, limit, period, burst)
  local LONGEST = 4503599627370496

  -- Returns at, part and, if known, limit, period, burst, slack. Returns nothing if unreadable.
  local function read(state)
    local at, part, numbers = tonumber(state), 0, nil
    if not at then
      local a, p
      a, p, numbers = state:match("^(%d+):(%d+)([:%d]*)$")
      at, part = tonumber(a), tonumber(p) or 0
    end
    if not at or not numbers then return at, part end
    local limit, period, burst, more = numbers:match("^:02:(%d+):(%d+):(%d+)(.*)$")
    if not limit then return at, part end
    limit, period, burst = limit + 0, period + 0, burst + 0
    if limit < 1 or limit > 1e15 or period < 1 or period > 3e13 + 2e12 or burst > 1e15 then return at, part end
    return at, part, limit, period, burst, tonumber((more:match("^:(%d+):0"))) or 0
  end

  -- Converts a duration by the old numbers to the duration of as many units by the new ones.
  -- Returns µs and part, rounded up.
  local function renumber(us, part, limit, period, new_limit, new_period)
    if limit == new_limit and period == new_period then return us, part end
    local units, rest = muldiv(us, limit, period)
    rest = rest + part
    units, rest = units + (rest - rest % period) / period, rest % period
    us, part = muldiv(units, new_period, new_limit)
    local more, over = muldiv(rest, new_period, period)
    part = part + more + (over > 0 and 1 or 0)
    return us + (part - part % new_limit) / new_limit, part % new_limit
  end

  -- Converts the level to the new numbers. Returns the whole level (µs, part) and how many µs of it
  -- are slack.
  local function adapt(ahead, part, slack, old_limit, old_period, old_burst, limit, period, burst)
    -- The debt: the level beyond a whole burst.
    local owed = ahead + (part > 0 and 1 or 0) - slack - muldiv(old_burst, old_period, old_limit)
    owed = owed > 0 and renumber(owed, 0, old_limit, old_period, limit, period) + 1 or 0
    ahead, part = renumber(ahead, part, old_limit, old_period, limit, period)
    if owed > LONGEST then owed = LONGEST end
    if ahead > LONGEST then ahead, part = LONGEST, 0 end
    local whole, rest = muldiv(burst, period, limit)
    slack = ahead - owed - whole - (rest > 0 and 1 or 0)
    return ahead, part, slack > 0 and slack or 0
  end

  local at, part, l, p, b, slack = read(state)
  if not at then return end
  if not (at >= now and at <= 9007199254740991) then return at, 0, 0, 0, false end
  local ahead, changed = at - now, false
  local ends = part > 0 and at + 1 or at
  slack = slack or 0
  if part >= (l or limit) then ahead, part = ahead + 1, 0 end
  if l and (l ~= limit or p ~= period or b ~= burst) then
    changed = ahead > 0 or part > 0
    ahead, part, slack = adapt(ahead, part, slack, l, p, b, limit, period, burst)
  end
  if slack > ahead or slack > 0 and slack == ahead and part == 0 then return ends, 0, 0, ahead + (part > 0 and 1 or 0), changed end
  return ends, ahead - slack, part, slack, changed
end

return function(state, now, limit, period, burst, cost, mode)
  if limit < 1 then return cost < 0 and cost or 0, 0, cost < 0 and 0 or -1, 0 end
  local tail = numbers and numbers[1] or (":0:02:%.0f:%.0f:%.0f"):format(limit, period, burst)

  -- ahead: µs from now to the TAT, at least 0, with part. slack: see SLACK. used: units of the
  -- burst that are used, rounded up.
  local ahead, part, slack, used, changed, needed = 0, 0, 0, 0, false, nil
  if state then
    if state:sub(17) == tail then
      needed = state:sub(1, 16) + 0
      if needed > now then ahead = needed - now end
    else
      needed, ahead, part, slack, changed = read_other(state, now, limit, period, burst)
      if not needed then ahead, part, slack = 0, 0, 0 end
    end
    if ahead > 0 or part > 0 then
      local units, rest = ahead * limit, nil
      if units < 9007199254740992 then
        rest = units % period
        units = (units - rest) / period
      else
        units, rest = muldiv(ahead, limit, period)
      end
      used = units + (rest + part + -(rest + part) % period) / period
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

  if granted == 0 then
    local least = (cost == 0 or mode == 1) and 1 or cost
    if least > burst then
      retry_after = -1
    else
      local us, rest = muldiv(burst - least, period, limit)
      retry_after = ahead - us + (part > rest and 1 or 0)
    end
  elseif cost > 0 then
    local us, rest = granted * period, nil
    if us < 9007199254740992 then
      rest = us % limit
      us = (us - rest) / limit
    else
      us, rest = muldiv(granted, period, limit)
    end
    ahead, part, changed = ahead + us, part + rest, true
    if part >= limit then ahead, part = ahead + 1, part - limit end
    -- The maximum debt is 2^52 µs (142 years).
    if ahead > 4503599627370496 then ahead = 4503599627370496 end
    left = left - granted
  elseif cost < 0 and (used > 0 or slack > 0) and (mode >= 0 or now + mode < 0) then
    local us, rest = muldiv(-cost, period, limit)
    ahead, part, changed = ahead - us, part - rest, true
    if part < 0 then ahead, part = ahead - 1, part + limit end
    left = left - cost
    if ahead < 0 then
      slack = slack + ahead + (part > 0 and 1 or 0)
      if slack < 0 then slack = 0 end
      ahead, part, left = 0, 0, burst
    end
  end

  local remaining = left < 0 and 0 or left
  local reset = part > 0 and ahead + 1 or ahead
  if not changed then return granted, remaining, retry_after, reset end
  local at = now + ahead + slack
  if at > 9007199254740991 then at = 9007199254740991 end
  if part == 0 and slack == 0 then
    local text = ("%d"):format(at)     -- twice as fast as "%.0f", and correct on 64-bit Redis
    if #text ~= 16 then text = ("%.0f"):format(at) end
    return granted, remaining, retry_after, reset, text .. tail, nil, needed
  end
  return granted, remaining, retry_after, reset,
         ("%.0f:%.0f"):format(at, part) .. tail:sub(3) .. (slack > 0 and (":%.0f:0"):format(slack) or ""), nil, needed, reset + slack
end
