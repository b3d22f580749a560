-- Calendar windows: days, weeks, months and years by the wall clock of a time zone.
--
-- Definition  A window starts when the wall clock first shows the start of its day, its Monday, the
--             first of its month or of its year, plus `shift`. It ends when the next one starts. If
--             the wall clock skips that moment, the window starts at the change. If the wall clock
--             shows it twice, the window starts at the first time. So a day has 23 or 25 hours when
--             the clocks change.
-- Source      ISO 8601 (weeks start on Monday); time zone rules from the IANA time zone database.
-- Used by     fixed_window, which receives the current window as period and offset, and custom
--             limiters.
--
-- `zone` maps a time to three values: the wall clock's offset from UTC in seconds, and the start
-- and end of that offset's validity. The windows depend only on now, so all weir processes and all
-- calls find the same windows. Units: seconds, except for the limiter's own µs.

local floor = math.floor

-- Returns the days from 1970-01-01 to the first of a month. Month 0 is January of the year 0.
local function days_before(months)
  local year, month = floor((months - 2) / 12), (months + 10) % 12   -- years start in March
  return 365 * year + floor(year / 4) - floor(year / 100) + floor(year / 400) + floor((153 * month + 2) / 5) - 719468
end

-- Returns the month of a day. The first guess is never too late and at most one month early.
local function month_of(day)
  local months = floor((day + 719528) / 30.436875) - 1
  while days_before(months + 1) <= day do months = months + 1 end
  return months
end

-- Return the start of the unit that contains a wall clock time, and the start of the next unit.
local starts = {
  day = function(wall) local start = wall - wall % 86400; return start, start + 86400 end,
  -- 1970-01-01 was a Thursday.
  week = function(wall) local start = wall - (wall + 259200) % 604800; return start, start + 604800 end,
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

  -- Returns the time at which the wall clock first shows `wall` or later.
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
    while now >= to do     -- the clock was set back across a start
      start, next = unit_of(next)
      from, to = to, first_time(next + shift)
    end
    while now < from do
      start = unit_of(start - 1)
      from, to = first_time(start + shift), from
    end
    return from * 1000000, to * 1000000
  end

  local at, from, to     -- cache: a call has a single now
  return function(state, now, limit, _, burst, cost, mode, _, ...)
    if now ~= at then
      at, from, to = now, window((now - now % 1000000) / 1000000)
    end
    return run(state, now, limit, to - from, burst, cost, mode, from, ...)
  end
end
