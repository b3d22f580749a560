-- Concurrency: requests in flight.
--
-- Definition  At most `limit` units are held at once. A holder takes `cost` units when it admits a
--             request and gives them back when the request has ended. The units of a holder count
--             for one lease, `period`, after its last charge, refund or renewal. Then they expire.
-- Guarantee   Never more than `limit` units in flight, as long as every holder of units renews
--             within a lease.
-- Source      C. Gray, D. Cheriton, "Leases: an efficient fault-tolerant mechanism for distributed
--             file cache consistency", SOSP 1989.
--
-- Units: µs. `burst` is the holder's id, a number from 1 to 2^53. Each worker of weir is a holder
-- with a random id.
--
-- mode 3, which only this limiter supports, renews a lease. With cost 0 it keeps the holder's
-- units. With cost 1 or more it sets the holder's units to cost, regardless of count and limit. A
-- refund subtracts from this holder only.
--
-- The end of a request cannot be predicted, so retry_after is one second. reset is the end of the
-- last lease.
--
-- State: "HOLDER:UNITS:UNTIL", separated by commas.

local HOLDERS_MAX = 256

return function(state, now, limit, period, holder, cost, mode)
  local total, own, had, ends, count, others = 0, 0, 0, now, 0, nil
  if state then
    for id, units, till in state:gmatch("(%d+):(%d+):(%d+)") do
      units, till = units + 0, till + 0
      if till > now and units < 9007199254740992 then
        total = total + units
        if id + 0 == holder then
          own, had = units, till
        else
          count = count + 1
          others = others or {}
          others[count] = ("%s:%.0f:%.0f"):format(id, units, till)
          if till > ends then ends = till end
        end
      end
    end
  end

  local left, granted, retry_after, kept, changed = limit - total, 0, 0, own, true
  if cost > 0 then
    if count >= HOLDERS_MAX and own == 0 then left = 0 end
    if mode == 3 then
      granted, kept = cost, cost
    elseif left >= cost or mode == 2 then
      granted, kept = cost, own + cost
    elseif mode == 1 and left >= 1 then
      granted, kept = left, own + left
    else
      changed = false
      retry_after = (mode == 1 and 1 or cost) > limit and -1 or 1000000
    end
  elseif cost < 0 then
    granted, kept, changed = cost, own > -cost and own + cost or 0, own > 0
  elseif mode == 3 then
    granted, changed = own, own > 0
  else
    changed = false
    if left >= 1 then granted = 1 else retry_after = limit < 1 and -1 or 1000000 end
  end

  local remaining = limit - total + own - kept
  if remaining < 0 then remaining = 0 end
  if kept > 0 then
    local till = changed and now + period or had
    if till > ends then ends = till end
  end
  if not changed then return granted, remaining, retry_after, ends - now end
  local mine = kept > 0 and ("%.0f:%.0f:%.0f"):format(holder, kept, now + period) or nil
  if not others then return granted, remaining, retry_after, ends - now, mine or "" end
  others[count + 1] = mine
  return granted, remaining, retry_after, ends - now, table.concat(others, ",")
end
