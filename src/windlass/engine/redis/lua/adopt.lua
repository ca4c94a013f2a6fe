-- Make jobs of these tasks ready at once that are held, except those of paused tasks.
-- ARGV: 1-3 clock, 4 limit, then tasks
-- Returns: number of jobs made ready
--@include moves

local left, adopted = tonumber(ARGV[4]), 0
for number = 5, #ARGV do
  local task = ARGV[number]
  local from, to = '[' .. task .. '\0', '(' .. task .. '\1'
  local dropped
  repeat
    if is_task_paused(task) then
      break
    end
    local members = call('ZRANGEBYLEX', key.parked, from, to, 'LIMIT', 0, left - adopted)
    local ids = {}
    for at, member in ipairs(members) do
      ids[at] = string.sub(member, #task + 9)
    end
    fetch(ids)
    dropped = 0
    for at, id in ipairs(ids) do
      local record = load(id)
      if record and record[HOLD] ~= 'none' and members[at] == member_of('parked', id, record) then
        offer_again(id, record)
        adopted = adopted + 1
      else
        drop(key.parked, members[at])
        dropped = dropped + 1
      end
    end
    flush()
  until dropped == 0
end
settle()
return adopted
