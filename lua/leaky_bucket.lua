-- Leaky bucket, as a meter or as a queue.
--
-- Definition  A bucket of `burst` units leaks `limit` units per `period`, evenly. A request adds
--             `cost` units. A request that would make the bucket overflow is rejected.
--             As a meter (max_delay 0 or absent), a request that fits passes at once.
--             As a queue (max_delay in µs), a request passes when the bucket's earlier content has
--             leaked out. If that takes longer than max_delay, the request is rejected. So requests
--             leave no closer together than the rate allows.
--             A request that leaves the queue frees its slot. Requests after it keep their
--             assigned times. The slot goes to the next request that fits into it, which may then
--             overtake requests that came earlier.
-- Guarantee   As a meter, at most burst + t * limit / period units are admitted in any interval of
--             t µs. As a queue, the request after one of n units is forwarded no sooner than
--             n * period / limit µs later, to the µs.
-- Source      J. S. Turner, "New directions in communications (or which way to the information
--             age?)", IEEE Communications Magazine 24(10), 1986 (the meter). A. S. Tanenbaum,
--             "Computer Networks", traffic shaping (the queue).
--
-- Units: µs. Only a delay is rounded, up to the next µs. The bucket is empty at the instant
-- at + part/limit µs. part is 0 if limit divides period. Free slots begin and end at whole µs.
--
-- Refunds from a queue: the mode of a negative cost is the time at which the units were to leave,
-- the `now` of their charge plus its delay. A queue refunds nothing without that time, since units
-- taken from the end of the queue may belong to another request.
--
-- Refunds from a meter: a bucket that has been empty since a charge holds nothing of that charge.
-- With mode -T, a negative cost has no effect from the time T on: the time of its charge plus the
-- reset after it.
--
-- State: "AT:PART:02:LIMIT:PERIOD:BURST", then ":SLACK:0" if SLACK is not 0, then free slots
--   AT, PART              the time at which the bucket is empty
--   02                    the version of this format
--   LIMIT, PERIOD, BURST  the numbers by which AT is counted
--   SLACK                 µs by which AT is later than the end of the level. As a meter, AT keeps
--                         counting the usage that a smaller burst hides, so that a larger burst
--                         restores it (as in gcra). As a queue, a change of the numbers never moves
--                         AT earlier, since waiting requests keep their assigned times.
--   free slots            as a queue, earliest first: ":FROM:TO:FROM:TO"
--
-- If the numbers have changed, the number of units in the bucket stays the same. If it is more than
-- the new burst, the units beyond it are hidden (SLACK). A debt stays visible: the units beyond the
-- old burst. The first request with the new numbers rewrites the state in them, even if it is
-- rejected.
--
-- Earlier versions wrote "AT" or "AT:PART" with free slots after it, counted by the current
-- numbers. They read unknown fields as expired free slots. gcra and leaky_bucket read each other's
-- states.

local FREE_MAX = 32  -- length of the list, two numbers per free slot; then the earliest is dropped

local muldiv, numbers = ...    -- muldiv.lua; numbers[1]: the end of a state with the current numbers, if the driver passes it
local AT_MAX, LONGEST = 9007199254740991, 4503599627370496     -- maximum debt: 2^52 µs (142 years)

-- Returns at, part; limit, period, burst and slack if known; and the free slots as text. Returns
-- nothing if unreadable.
local function read(state)
  local at, part, more = tonumber(state), 0, ""
  if not at then
    local a, p
    a, p, more = state:match("^(%d+):(%d+)([:%d]*)$")
    at, part = tonumber(a), tonumber(p) or 0
  end
  if not at then return end
  local limit, period, burst, places = more:match("^:02:(%d+):(%d+):(%d+)(.*)$")
  if not limit then return at, part, nil, nil, nil, 0, more end
  limit, period, burst = limit + 0, period + 0, burst + 0
  if limit < 1 or limit > 1e15 or period < 1 or period > 3e13 + 2e12 or burst > 1e15 then return at, part, nil, nil, nil, 0, "" end
  local slack, behind = places:match("^:(%d+):0(.*)$")
  return at, part, limit, period, burst, slack and slack + 0 or 0, behind or places
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

-- Returns how many units fit into a free slot of `us` µs.
local function units_in(us, limit, period, burst)
  local units, rest = muldiv(us + 1, limit, period)
  if rest == 0 then units = units - 1 end
  return units < burst and units or burst
end

-- Returns the maximum number of units that fit into one free slot, that slot, and the first slot
-- into which `cost` units fit.
local function look_around(free, now, limit, period, burst, max_delay, cost)
  local most, largest, first = 0, nil, nil
  for i = 1, #free, 2 do
    local units = free[i] - now <= max_delay and units_in(free[i + 1] - free[i], limit, period, burst) or 0
    if units > most then most, largest = units, i end
    if not first and units >= cost then first = i end
  end
  return most, largest, first
end

-- Inserts a free slot in order of time and merges it with adjacent slots. Adjacent slots may lie up
-- to 2 µs apart, since each begins and ends at a whole µs. `slack` is that tolerance. It is smaller
-- if a slot itself may be that short, and 0 if nothing is rounded.
local function enter(free, from, to, slack)
  local i = 1
  while free[i] and free[i] < from do i = i + 2 end
  table.insert(free, i, to)
  table.insert(free, i, from)
  i = i > 2 and i - 2 or i
  while free[i + 2] do
    if free[i + 2] - free[i + 1] > slack then
      if free[i] >= from then break end
      i = i + 2
    else
      local ends = table.remove(free, i + 3)
      table.remove(free, i + 2)
      if ends > free[i + 1] then free[i + 1] = ends end
    end
  end
  if #free > FREE_MAX then table.remove(free, 1); table.remove(free, 1) end
end

-- Returns the free slots that have not expired and end by `at`, when the bucket is empty; nil if
-- none.
local function read_places(places, now, at)
  local free = {}
  for from, to in places:gmatch(":(%d+):(%d+)") do
    from, to = from + 0, to + 0
    if to > now and from < to and to <= at + 1 then
      free[#free + 1] = from > now and from or now
      free[#free + 1] = to
    end
  end
  return free[1] and free or nil
end

-- adapt() for a queue: waiting requests keep their assigned times, so AT never moves earlier.
-- `slack`: how much earlier the level ends.
local function adapt_queue(drain, part, slack, ...)
  local level, rest, cut = adapt(drain > slack and drain - slack or 0, drain > slack and part or 0, 0, ...)
  local told, ends = part > 0 and drain + 1 or drain, rest > 0 and level + 1 or level
  if told > ends then return told, 0, told - ends + cut end
  return level, rest, cut
end

-- Returns how many units leak in `us` µs and part, rounded up.
local function units_of(us, part, limit, period)
  if us < 0 then return 0 end
  local units, rest = muldiv(us, limit, period)
  return units + (rest + part + -(rest + part) % period) / period
end

return function(state, now, limit, period, burst, cost, mode, offset, max_delay)
  if limit < 1 then return cost < 0 and cost or 0, 0, cost < 0 and 0 or -1, 0 end
  if not max_delay or max_delay <= 0 then max_delay = nil end
  local tail = numbers and numbers[1] or (":0:02:%.0f:%.0f:%.0f"):format(limit, period, burst)

  -- drain: µs until the bucket is empty, with part. level: units in the bucket, rounded up. wait
  -- (below): delay of a request that arrives now. As a meter, `drain` ends with the level, and AT
  -- is `slack` later. As a queue, `drain` ends at AT, and the level ends `slack` earlier.
  local drain, part, slack, level, free, changed, needed = 0, 0, 0, 0, nil, false, nil
  if state then
    local at, l, p, b, places
    if state:sub(17) == tail then
      at = tonumber((state:sub(1, 16)))
    else
      at, part, l, p, b, slack, places = read(state)
    end
    if at then needed = part > 0 and at + 1 or at end
    if at and at >= now and at <= AT_MAX then
      drain = at - now
      if part >= (l or limit) then drain, part = drain + 1, 0 end
      if l and (l ~= limit or p ~= period or b ~= burst) then
        changed = drain > 0 or part > 0
        drain, part, slack = (max_delay and adapt_queue or adapt)(drain, part, slack, l, p, b, limit, period, burst)
      end
      if slack > 0 and not max_delay then
        if slack > drain or slack == drain and part == 0 then slack, drain, part = drain + (part > 0 and 1 or 0), 0, 0 else drain = drain - slack end
        level = units_of(drain, part, limit, period)
      elseif slack >= drain and slack > 0 then
        slack = drain
      else
        level = units_of(drain - slack, part, limit, period)
      end
      if max_delay and places and places ~= "" then free = read_places(places, now, now + drain) end
    else
      part, slack = 0, 0
    end
  end
  local wait = part > 0 and drain + 1 or drain

  local room = burst - level
  local open = (max_delay and wait > max_delay) and 0 or room
  local granted, retry_after = 0, 0
  local most, largest, place = 0, nil, nil
  if free then most, largest, place = look_around(free, now, limit, period, burst, max_delay, cost) end
  if cost > 0 then
    if mode == 2 then
      granted, place = cost, nil
    elseif place or open >= cost then
      granted = cost
    elseif mode == 1 and (open >= 1 or most >= 1) then
      granted = open
      if most > open then granted, place = most, largest end
    end
  elseif cost < 0 then
    granted = cost
  elseif open >= 1 or most >= 1 then
    granted = 1
  end

  if granted == 0 then
    local least = (cost == 0 or mode == 1) and 1 or cost
    if least > burst then
      retry_after = -1
    else
      local us, rest = muldiv(burst - least, period, limit)
      retry_after = (max_delay and drain - slack or drain) - us + (part > rest and 1 or 0)
      if max_delay and retry_after < wait - max_delay then retry_after = wait - max_delay end
    end
  elseif cost > 0 and place then
    local us = muldiv(granted, period, limit)
    wait, changed = free[place] - now, true
    -- Rounded down. Otherwise the last of several requests would no longer fit.
    free[place] = free[place] + (us > 0 and us or 1)
    if free[place] >= free[place + 1] then table.remove(free, place); table.remove(free, place) end
  elseif cost > 0 then
    local us, rest = muldiv(granted, period, limit)
    drain, part, room, changed = drain + us, part + rest, room - granted, true
    if part >= limit then drain, part = drain + 1, part - limit end
    if drain > LONGEST then drain = LONGEST end
  elseif cost < 0 and (level > 0 or slack > 0) and not max_delay and (mode >= 0 or now + mode < 0) then
    local us, rest = muldiv(-cost, period, limit)
    drain, part, room, changed = drain - us, part - rest, room - cost, true
    if part < 0 then drain, part = drain - 1, part + limit end
    if drain < 0 then
      slack = slack + drain + (part > 0 and 1 or 0)
      if slack < 0 then slack = 0 end
      drain, part, room = 0, 0, burst
    end
  elseif cost < 0 and wait > 0 and mode > 0 then
    local from, to = mode > now and mode or now, mode + muldiv(-cost, period, limit)
    local slack = period % limit == 0 and 0 or period >= 4 * limit and 2 or period >= 2 * limit and 1 or 0
    if from < to and from <= now + drain then
      changed, free = true, free or {}
      if to + slack >= now + drain then      -- the end of the queue, and free slots before it
        drain, part = from - now, 0
        while free[1] and free[#free] + slack >= now + drain do
          local begins = free[#free - 1] - now
          drain = begins < drain and begins or drain
          free[#free], free[#free - 1] = nil, nil
        end
        if slack > drain then slack = drain end
        room = burst - units_of(drain - slack, 0, limit, period)
      else
        enter(free, from, to, slack)
      end
    end
  end

  local reset = part > 0 and drain + 1 or drain
  local remaining = (room < 0 or max_delay and reset > max_delay) and 0 or room
  if free and free[1] then
    most = look_around(free, now, limit, period, burst, max_delay, 1)
    if most > remaining then remaining = most end
  end
  if not changed then return granted, remaining, retry_after, reset end

  local delay = max_delay and cost > 0 and granted > 0 and (wait < max_delay and wait or max_delay) or nil
  local lasts = max_delay and reset or reset + slack
  local at = now + drain + (max_delay and 0 or slack)
  if at > AT_MAX then at = AT_MAX end
  if part == 0 and slack == 0 and not (free and free[1]) then
    local text = ("%d"):format(at)     -- twice as fast as "%.0f", and correct on 64-bit Redis
    if #text ~= 16 then text = ("%.0f"):format(at) end
    return granted, remaining, retry_after, reset, text .. tail, delay, needed
  end
  local behind = slack > 0 and (":%.0f:0"):format(slack) or ""
  if free and free[1] then
    for i = 1, #free do free[i] = (":%.0f"):format(free[i]) end
    behind = behind .. table.concat(free)
  end
  return granted, remaining, retry_after, reset, ("%.0f:%.0f"):format(at, part) .. tail:sub(3) .. behind, delay, needed, lasts
end
