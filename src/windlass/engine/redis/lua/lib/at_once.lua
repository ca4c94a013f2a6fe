-- What most calls are about when there is little to do: one job without keys, and somebody who waits
-- for it. Before anything else is made that other calls need.
--@include handoff

if may_hand_over then
  local head = cmsgpack.unpack(ARGV[4])
  if not head[9] and hand_over(head, ARGV[5], '') then
    return { head[1], 'created' }
  end
  may_hand_over = head[9]  -- the others have been tried
end
