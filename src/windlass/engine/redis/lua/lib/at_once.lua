-- Fast path of `put` under light load: one job without keys, and an idle session that can take it. The
-- fast path runs before Lua defines the functions that other calls need.
--@include handoff

if may_hand_over then
  local head = cmsgpack.unpack(ARGV[4])
  if not head[9] and hand_over(head, ARGV[5], '') then
    return { head[1], 'created' }
  end
  may_hand_over = head[9]  -- these registrations have been tried
end
