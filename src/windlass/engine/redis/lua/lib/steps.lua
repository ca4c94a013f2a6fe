-- Completed parts of jobs. A member of `steps` has the id of a job, the name of the step and its value.
-- KEYS: steps
--@include records

-- The members of a job, by name.
local function steps_of(id)
  return call('ZRANGEBYLEX', key.steps, '[' .. id .. '\0', '(' .. id .. '\1')
end

local function step_member(id, name, value)
  return id .. '\0' .. name .. '\0' .. value
end

-- The name and the value in a member.
local function read_step(member)
  local from = string.find(member, '\0', 1, true) + 1
  local upto = string.find(member, '\0', from, true) or #member + 1
  return sub(member, from, upto - 1), sub(member, upto + 1)
end

local has_steps  -- whether any job has a step

local function forget_steps(id)
  if has_steps == nil then
    has_steps = call('ZCARD', key.steps) > 1
  end
  for _, member in ipairs(has_steps and steps_of(id) or {}) do
    write('ZREM', key.steps, member)
  end
end
