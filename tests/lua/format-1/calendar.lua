-- Windows of the calendar: days, weeks, months and years by the wall clock of a time zone.
--
-- Definition  A window starts when the wall clock first shows the start of its day, its Monday, the first of its month or of its year, and
--             `shift` later; it ends when the next one starts. Where the wall clock leaves that moment out, it starts at the change; where it
--             shows it twice, at the first time. So a day has 23 or 25 hours where clocks are changed.
-- Made for    fixed_window, which hears of the window that holds now by its period and its offset; and scripts of your own.
--
-- The zone is a function from a time to the seconds that the wall clock is ahead of UTC, and from when and until when it is. Everything
-- follows from now, so every weir and every call find the same windows. Seconds, but for the limiter's own µs.

local floor = math.floor

-- Days from 1970-01-01 to the first of a month; months count from 0, the January of the year 0.
local function days_before(months)
  local year, month = floor((months - 2) / 12), (months + 10) % 12        -- of years that begin in March
  return 365 * year + floor(year / 4) - floor(year / 100) + floor(year / 400) + floor((153 * month + 2) / 5) - 719468
end

-- The month that a day lies in: at most one on from this guess, which is never too late.
local function month_of(day)
  local months = floor((day + 719528) / 30.436875) - 1
  while days_before(months + 1) <= day do months = months + 1 end
  return months
end

-- The start of the unit that a moment of the wall clock lies in, and of the next.
local starts = {
  day = function(wall) local start = wall - wall % 86400; return start, start + 86400 end,
  week = function(wall) local start = wall - (wall + 259200) % 604800; return start, start + 604800 end,     -- 1970 began on a Thursday
  month = function(wall)
    local months = month_of(floor(wall / 86400))
    return days_before(months) * 86400, days_before(months + 1) * 86400
  end,
  year = function(wall)
    local months = month_of(floor(wall / 86400))
    months = months - months % 12
    return days_before(months) * 86400, days_before(months + 12) * 86400
  end,
}

return function(run, unit, shift, zone)
  local unit_of = starts[unit]

  -- When the wall clock first shows so much, or more.
  local function first_time(wall)
    local ahead, _, change = zone(wall - 86400)
    while wall - ahead >= change do
      local at = change
      ahead, _, change = zone(at)
      if wall - ahead < at then return at end
    end
    return wall - ahead
  end

  local function window(now)
    local wall = now + zone(now) - shift
    local start, next = unit_of(wall)
    local from, to = first_time(start + shift), first_time(next + shift)
    while now >= to do                                         -- the clock was put back over a start
      start, next = unit_of(next)
      from, to = to, first_time(next + shift)
    end
    while now < from do
      start = unit_of(start - 1)
      from, to = first_time(start + shift), from
    end
    return from * 1000000, to * 1000000
  end

  local at, from, to                                           -- of the call's one clock
  return function(state, now, limit, _, burst, cost, mode, _, ...)
    if now ~= at then
      at, from, to = now, window((now - now % 1000000) / 1000000)
    end
    return run(state, now, limit, to - from, burst, cost, mode, from, ...)
  end
end
