-- Returns quotient and remainder of a * b / c for whole numbers, exact for c < 10^15 even if a * b
-- exceeds 2^53, the bound of exact integers in doubles.
--
-- weir pastes this file in front of the limiters that use it, which receive the function as the
-- first argument of their file. So does `weir script`.

return function(a, b, c)
  local product = a * b
  if product < 9007199254740992 then
    local remainder = product % c
    return (product - remainder) / c, remainder
  end
  local rest = b % c
  local whole, quotient, remainder, unit = a * ((b - rest) / c), 0, 0, 1
  local base = c < 35184372088832 and 128 or 4     -- so that (2 * base - 1) * c stays below 2^53
  while unit * base <= a do unit = unit * base end
  repeat               -- long multiplication and division, one digit of a at a time
    local tail = a % unit
    local sum = remainder * base + (a - tail) / unit * rest
    remainder = sum % c
    quotient = quotient * base + (sum - remainder) / c
    a, unit = tail, unit / base
  until unit < 1
  return whole + quotient, remainder
end
