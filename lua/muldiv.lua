-- Returns quotient and remainder of a * b / c for whole numbers, exact for c < 2^45 even if a * b
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
  while unit * 128 <= a do unit = unit * 128 end
  repeat               -- long multiplication and division, one base-128 digit of a at a time
    local tail = a % unit
    local sum = remainder * 128 + (a - tail) / unit * rest
    remainder = sum % c
    quotient = quotient * 128 + (sum - remainder) / c
    a, unit = tail, unit / 128
  until unit < 1
  return whole + quotient, remainder
end
