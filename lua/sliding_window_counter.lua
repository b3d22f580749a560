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
-- The ninth result is the time until the weighted count has fallen by one unit or, in debt, until a
-- unit is available.
--
-- Edits. If the period has changed, the weighted count by the old period counts as usage of the
-- current window by the new period. If a window holds more units than a lowered limit, it keeps
-- `limit` units, or as many as the weighted count needs to reach the limit, if these are more. The
-- others are hidden: they do not count, but a larger limit restores them (clients of several plans
-- may share a key). After a charge into debt, a lowered limit hides nothing, since debts are owed
-- in full. The first request with the new numbers rewrites the state in them, even if it is
-- rejected.
--
-- State: "SINCE:CURRENT:PREVIOUS"
--   SINCE     a time in the current window: its start or, with an offset, the time of the last
--             charge
--   CURRENT   units of the current window
--   PREVIOUS  units of the previous window
-- Leading zeros encode the period, to one part in 390: z zeros before SINCE, y before CURRENT and x
-- before PREVIOUS stand for 2^((z + 23 * y + 529 * x - 1) / 270) µs. 23 more before PREVIOUS stand
-- for a debt: more units were charged than the limit admits, and they still count. If units are
-- hidden, CURRENT and PREVIOUS are rows of digits:
--   CURRENT   1, LIMIT (13), hidden units (13), counting units (13)
--   PREVIOUS  1, hidden units (13), counting units (13)
-- LIMIT is the limit for which they are hidden.
--
-- Earlier versions write no zeros and read only the three numbers, so that a fourth number is not
-- possible. They read hidden units as a count far beyond every limit: they reject the client until
-- two periods have passed, and what they write then counts as a whole limit.

local muldiv = ...             -- muldiv.lua

local LARGEST = 9999999999999  -- of a row of digits

local code, code_period        -- z + 23 * y + 529 * x of this period
local zeros_z, zeros_y, zeros_x, FORMAT, DEBT_FORMAT
-- "%d" is twice as fast, and correct if C integers are wide enough.
local DIGITS = ("%d"):format(9007199254740991) == "9007199254740991" and "%d" or "%.0f"

local function encode(period)
  code_period, code = period, 1 + math.floor(270 * math.log(period) / math.log(2))
  local z, y = code % 23, (code - code % 23) / 23
  y = y % 23
  zeros_z, zeros_y, zeros_x = ("0"):rep(z), ("0"):rep(y), ("0"):rep((code - z - 23 * y) / 529)
  FORMAT = zeros_z .. DIGITS .. ":" .. zeros_y .. DIGITS .. ":" .. zeros_x .. DIGITS
  DEBT_FORMAT = zeros_z .. DIGITS .. ":" .. zeros_y .. DIGITS .. ":" .. zeros_x .. ("0"):rep(23) .. DIGITS
end

local function zeros_of(digits) return (digits:find("[^0]") or #digits) - 1 end

-- Returns the weight of the previous window, rounded up. If the clock went back, all of it counts.
local function weight_of(previous, elapsed, period)
  if previous == 0 or elapsed <= 0 then return previous end
  local units, rest = muldiv(previous, period - elapsed, period)
  return rest > 0 and units + 1 or units
end

-- Returns the earliest time into a window at which `previous` units of the window before weigh at
-- most `room`, 0 <= room < previous.
local function fades(previous, room, period)
  return period - (muldiv(room, period, previous))
end

-- Returns the time from the start of the current window until the weighted count is at most `most`.
-- It must be more now.
local function falls(current, previous, most, period)
  if current <= most then return fades(previous, most - current, period) end
  return period + fades(current, most, period)
end

-- Returns the weighted count at a time `elapsed` into a window of an earlier period, which is given
-- by its code. Rounded up.
local function counting(elapsed, current, previous, of_period)
  local period = math.ceil(2 ^ (of_period / 270))
  if elapsed >= 2 * period then return 0 end
  if elapsed < 0 then elapsed = 0 end
  if elapsed >= period then return math.ceil(current * (2 * period - elapsed) / period) end
  return current + math.ceil(previous * (period - elapsed) / period)
end

-- Returns how many units of both windows count for a limit.
local function visible(current, previous, limit, elapsed, period)
  if current > limit then current = limit end
  if previous > limit then
    local most = elapsed > 0 and muldiv(limit - current, period, period - elapsed) or limit
    if most < limit then most = limit end
    if previous > most then previous = most end
  end
  return current, previous
end

-- Returns since, current, previous, the code of their period (0: unknown), whether there is a debt;
-- then, for hidden units, those of both windows and the limit for which they are hidden. Returns
-- nothing if the state is unreadable.
local function read(state, limit)
  local s, c, p = state:match("^(%d+):(%d+):(%d+)$")
  if not s then return end
  local x = zeros_of(p)
  local written = zeros_of(s) + 23 * zeros_of(c) + 529 * (x % 23)
  local current, previous = c + 0, p + 0
  if current <= LARGEST and previous <= LARGEST then return s + 0, current, previous, written, x > 22, 0, 0 end
  local row = "(" .. ("%d"):rep(13) .. ")"
  local l, hc, cc, hp, pp = (c:sub(-39) .. p:sub(-26)):match("^" .. row:rep(5) .. "$")
  if written > 0 and l then return s + 0, cc + 0, pp + 0, written, x > 22, hc + 0, hp + 0, l + 0 end
  -- An earlier version has rewritten the rows as numbers.
  return s + 0, current <= LARGEST and current or limit, previous <= LARGEST and previous or limit, 0, false, 0, 0
end

local function write(since, current, previous, debt, hidden_c, hidden_p, limit)
  if hidden_c + hidden_p == 0 then return (debt and DEBT_FORMAT or FORMAT):format(since, current, previous) end
  local function row(digits) return ("%013.0f"):format(digits < LARGEST and digits or LARGEST) end
  return zeros_z .. ("%.0f:"):format(since) .. zeros_y .. "1" .. row(limit) .. row(hidden_c) .. row(current) .. ":"
         .. zeros_x .. (debt and ("0"):rep(23) or "") .. "1" .. row(hidden_p) .. row(previous)
end

return function(state, now, limit, period, burst, cost, mode, offset)
  if period ~= code_period then encode(period) end

  -- The units that count, those that do not, and the start of the current window.
  local since, current, previous, hidden_c, hidden_p, start = now, 0, 0, 0, 0, nil
  local adapted, debt, hidden_for, written = false, false, nil, code
  if state then
    local s, c, p, of_period, owes, hc, hp, l = read(state, limit)
    if s then
      since, current, previous, written, debt, hidden_c, hidden_p, hidden_for = s, c, p, of_period, owes, hc, hp, l
      if written ~= code and written > 0 then
        local all = counting(now - since, current + hidden_c, previous + hidden_p, written)
        current, previous = counting(now - since, current, previous, written), 0
        hidden_c, hidden_p, adapted = all - current, 0, all > 0
        if offset then since = now elseif now - since >= period then since = now - (now - since) % period end
      end
      start = offset and since - (since - offset) % period or since
      if now - start >= period then
        if current + hidden_c == 0 or now - start >= 2 * period then
          since, current, previous, hidden_c, hidden_p, start = now, 0, 0, 0, 0, nil
        else
          start = start + period
          since, current, previous, hidden_c, hidden_p = start, 0, current, 0, hidden_c
        end
      end
    end
  end
  if not start then start = offset and now - (now - offset) % period or now end
  local elapsed = now - start

  local lowered = not debt and written > 0 and (current > limit or previous > limit and not hidden_for)
  if lowered or hidden_for and hidden_for ~= limit then
    local all_c, all_p = current + hidden_c, previous + hidden_p
    local c, p = visible(all_c, all_p, limit, elapsed, period)
    if debt then c, p = math.max(c, current), math.max(p, previous) end
    adapted = adapted or hidden_for or c < all_c or p < all_p
    current, previous, hidden_c, hidden_p = c, p, all_c - c, all_p - p
  end
  local weight = weight_of(previous, elapsed, period)

  local left, granted, retry_after, changed = limit - current - weight, 0, 0, true
  if cost < 0 then
    local newer, older = 0, 0
    if mode == 0 or mode >= start then newer = current < -cost and current or -cost end
    if mode == 0 then older = -cost - newer elseif mode < start and mode >= start - period then older = -cost end
    if older > previous then older = previous end
    granted, changed = cost, newer + older > 0
    current, previous = current - newer, previous - older
    if older > 0 then weight = weight_of(previous, elapsed, period) end
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
    retry_after = least > limit and -1 or start - now + falls(current, previous, limit - least, period)
  end
  local remaining = limit - current - weight
  if remaining < 0 then remaining = 0 end
  local reset = current > 0 and start + 2 * period - now or previous > 0 and start + period - now or 0
  local count = current + weight
  local next_unit = count > 0 and start - now + falls(current, previous, (count < limit and count or limit) - 1, period) or 0
  if not changed and not adapted then return granted, remaining, retry_after, reset, nil, nil, nil, nil, next_unit end

  if debt or mode == 2 or written == 0 then
    debt = current + weight > limit or current > limit or previous > limit
  end
  if offset and now > since then since = now end
  local lasts = hidden_c > 0 and start + 2 * period - now or hidden_p > 0 and reset == 0 and start + period - now or reset
  return granted, remaining, retry_after, reset, write(since, current, previous, debt, hidden_c, hidden_p, limit), nil, nil, lasts,
         next_unit
end
