-- Change documents that are still in the expected revision. All changes are decided before the first write.
-- Removals come first: a server whose memory is full accepts them, and what follows them.
-- KEYS: meta document
-- ARGV: 1-3 clock, 4 limit of documents of one kind, then for each change: kind, key, expected revision,
--       new revision, "1" to store a body or "0" to remove the document, body
-- Returns: for each change 1 if it was applied, now or earlier, otherwise 0; or only a kind that would have too
--          many documents, and nothing is changed
--@adds
--@include clock

local most = tonumber(ARGV[4])
local before, after = {}, {}  -- kind and key -> the stored document, and that after the changes so far
local numbers = {}            -- kind -> the number of documents after the changes so far

local function find(name)
  if after[name] == nil then
    after[name] = call('ZRANGEBYLEX', key.document, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', 0, 1)[1] or false
    before[name] = after[name]
  end
  return after[name]
end

local function revision_of(name, document)
  if not document then
    return ''
  end
  local from = #name + 2
  return sub(document, from, string.find(document, '\0', from, true) - 1)
end

local function number_of(kind)
  numbers[kind] = numbers[kind] or call('ZLEXCOUNT', key.document, '[' .. kind .. '\0', '(' .. kind .. '\1')
  return numbers[kind]
end

local reply = {}
for at = 5, #ARGV, 6 do
  local kind, expected, revision, is_removal = ARGV[at], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4] == '0'
  local name = kind .. '\0' .. ARGV[at + 1]
  local found = find(name)
  local current = revision_of(name, found)
  local is_done = 1
  if current ~= expected and (found or not is_removal) then
    is_done = found and not is_removal and current == revision and 1 or 0
  elseif is_removal then
    numbers[kind] = number_of(kind) - (found and 1 or 0)
    after[name] = false
  else
    if not found and number_of(kind) >= most then
      return kind
    end
    numbers[kind] = number_of(kind) + (found and 0 or 1)
    after[name] = name .. '\0' .. revision .. '\0' .. ARGV[at + 5]
  end
  reply[#reply + 1] = is_done
end
for name, document in pairs(after) do
  if before[name] and before[name] ~= document then
    call('ZREM', key.document, before[name])
  end
end
for name, document in pairs(after) do
  if document and before[name] ~= document then
    call('ZADD', key.document, '0', document)
  end
end
return reply
