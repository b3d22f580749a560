return function(state, now, limit, period, burst, cost)
  return cost == 0 and 1 or cost, limit, 0, 0
end
