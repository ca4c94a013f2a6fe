-- Compare texts byte by byte, as sorted sets do: the operator < depends on the server's locale.
local function is_before(one, other)
  for at = 1, math.min(#one, #other) do
    local a, b = string.byte(one, at), string.byte(other, at)
    if a ~= b then
      return a < b
    end
  end
  return #one < #other
end
