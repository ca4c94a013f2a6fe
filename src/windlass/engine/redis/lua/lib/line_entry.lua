-- The entries of `lines`: the mark of suspects, the labels that the line requires, a zero, the name of a
-- group, a zero, rank and place of the first job in line, and the queue. Ranks are adjusted by ages, and
-- may be below zero.
local RANK_BIAS = 4294967296

local function make_entry(suspects, labels, group, rank, place, queue)
  return suspects .. labels .. '\0' .. group .. '\0' .. struct.pack('>I5I7', rank + RANK_BIAS, place) .. queue
end
