-- Token bucket.
--
-- Definition  A bucket holds up to `burst` tokens and is full at first. `limit` tokens arrive per
--             `period`, evenly. Tokens that do not fit are lost. A request takes `cost` tokens; if
--             there are too few, it is rejected.
-- Guarantee   At most burst + t * limit / period units are admitted in any interval of t µs.
-- Source      J. S. Turner, "New directions in communications (or which way to the information
--             age?)", IEEE Communications Magazine 24(10), 1986. RFC 2697, section 3, for the
--             continuously filled bucket.
--
-- Units: µs and whole tokens. Nothing is rounded, so there is no drift. The state is the number of
-- missing whole tokens at one instant. That instant is always one at which a token arrived (or the
-- first was taken): since + part/limit µs, as limit tokens take period µs. part is 0 if limit
-- divides period.
--
-- State: "MISSING:SINCE:PART:MORE"
--   MISSING  missing tokens; negative if the bucket is in debt (mode 2)
--   SINCE    the instant, with PART
--   MORE     one row of digits: the time at which the bucket is full (16), limit (13), period (14),
--            burst (13), and CUT if it is not 0. If limit or burst needs more digits, both are
--            9999999999999, and follow them as limit (15) and burst (15)
--   CUT      missing tokens hidden by a smaller burst. They are missing again for a larger burst,
--            as clients of several plans may share a key.
--
-- Refunds: a bucket that has been full since a charge holds nothing of that charge. With mode -T, a
-- negative cost has no effect from the time T on: the time of its charge plus the reset after it.
--
-- If limit, period or burst have changed, the number of missing tokens and the fraction of the next
-- token stay the same. If more than the new burst is missing, the tokens beyond it are hidden
-- (CUT). A debt stays visible: the tokens that were missing beyond the old burst. The first request
-- with the new numbers rewrites the state in them, even if it is rejected.
--
-- Earlier versions wrote only the first 16 digits of MORE, without the numbers. They read a longer
-- row as a time long after the expiry of any key.

local muldiv, numbers = ...    -- muldiv.lua; numbers[1]: the end of a state with the current numbers, if the driver passes it

-- "%d" is twice as fast, and correct if C integers are wide enough.
local WIDE = ("%d"):format(9007199254740991) == "9007199254740991"
local FORMAT = WIDE and "%d:%d:%d:%016d" or "%.0f:%.0f:%.0f:%016.0f"
local NUMBERS = WIDE and "%013d%014d%013d" or "%013.0f%014.0f%013.0f"
local LARGE = 9999999999999

-- Returns the end of a state with these numbers, without CUT.
local function tail_of(limit, period, burst)
  if limit < LARGE and burst < LARGE then return NUMBERS:format(limit, period, burst) end
  return NUMBERS:format(LARGE, period, LARGE) .. ("%015.0f%015.0f"):format(limit, burst)
end

-- Returns limit, period, burst and CUT of a state, or nothing.
local function numbers_of(more)
  local limit, period, burst, cut = more:match("^" .. ("%d"):rep(16) .. "(" .. ("%d"):rep(13) .. ")(" .. ("%d"):rep(14) .. ")(" .. ("%d"):rep(13)
                                               .. ")(%d*)$")
  if limit and limit + 0 == LARGE then
    limit, burst, cut = cut:match("^(" .. ("%d"):rep(15) .. ")(" .. ("%d"):rep(15) .. ")(%d*)$")
  end
  if not limit or limit + 0 < 1 or period + 0 < 1 or period + 0 > 3e13 + 2e12 then return end
  return limit + 0, period + 0, burst + 0, cut ~= "" and cut + 0 or 0
end

-- Bounds missing tokens to those that arrive in 2^52 µs (142 years), the maximum debt.
local function bounded(missing, limit, period, burst)
  local most = muldiv(4503599627370496, limit, period)
  if most > 4503599627370496 then most = 4503599627370496 end
  if most < burst then most = burst end
  return missing < most and missing or most
end

-- Returns the µs from `since` until `tokens` more have arrived, rounded up.
local function arrival(tokens, limit, period, part)
  local us, rest = muldiv(tokens, period, limit)
  return us + (rest + part + -(rest + part) % limit) / limit
end

-- Converts `since` to the new numbers, so that the same fraction of the next token has arrived.
-- Rounded up. Returns since and part.
local function move_since(now, since, part, limit, period, new_limit, new_period)
  if now <= since then return part > 0 and since + 1 or since, 0 end
  local elapsed = muldiv((now - since) * limit - part, new_period, period)     -- in 1/new_limit µs
  local over = elapsed % new_limit
  since = now - (elapsed - over) / new_limit
  if over > 0 then return since - 1, new_limit - over end
  return since, 0
end

return function(state, now, limit, period, burst, cost, mode)
  if limit < 1 then return cost < 0 and cost or 0, 0, cost < 0 and 0 or -1, 0 end
  local tail = numbers and numbers[1] or tail_of(limit, period, burst)

  local missing, since, part, cut, adapted, needed = 0, now, 0, 0, false, nil
  if state then
    local m, s, p, more = state:match("^(-?%d+):(%d+):(%d+):(%d+)$")
    if m then
      needed = more:sub(1, 16) + 0
      missing, since, part = m + 0, s + 0, p + 0
      local l, per, b = limit, period, burst
      if more:sub(17) ~= tail then
        l, per, b, cut = numbers_of(more)
        if not l then l, per, b, cut = limit, period, burst, 0 end
      end
      if missing < 0 then missing = bounded(-missing, l, per, b) elseif missing > b then missing = b end
      if part >= l then since, part = since + 1, 0 end
      if now > since then
        local arrived, rest = muldiv(now - since, l, per)
        arrived = arrived + (rest - part - (rest - part) % per) / per
        if arrived >= missing then
          cut = cut > arrived - missing and cut - (arrived - missing) or 0
          missing, since, part = 0, now, 0
        elseif arrived > 0 then
          missing = missing - arrived
          local us, over = muldiv(arrived, per, l)
          since, part = since + us, part + over
          if part >= l then since, part = since + 1, part - l end
        end
      end
      if l ~= limit or per ~= period or b ~= burst then
        adapted = missing + cut > 0
        since, part = move_since(now, since, part, l, per, limit, period)
        local owed, all = missing > b and missing - b or 0, missing + cut
        missing = all
        if all - owed > burst then missing, since, part = burst + owed, now, 0 end
        if missing > burst then missing = bounded(missing, limit, period, burst) end
        cut = all - missing
      end
    end
  end

  local left, granted, retry_after, changed = burst - missing, 0, 0, true
  if cost < 0 then
    granted, changed = cost, missing + cut > 0 and (mode >= 0 or now + mode < 0)
    if changed then missing = missing + cost end
    if missing < 0 then
      cut = cut + missing > 0 and cut + missing or 0
      missing = 0
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
  if not changed and not adapted then return granted, remaining, retry_after, reset end

  local lasts = cut > 0 and since - now + arrival(missing + cut, limit, period, part) or reset
  if lasts > 4503599627370496 then lasts = 4503599627370496 end      -- now + lasts has 16 digits
  if missing > burst then missing = -missing end
  return granted, remaining, retry_after, reset,
         FORMAT:format(missing, since, part, now + lasts) .. tail .. (cut > 0 and ("%.0f"):format(cut) or ""), nil, needed, lasts
end
