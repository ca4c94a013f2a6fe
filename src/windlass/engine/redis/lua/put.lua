-- Store new jobs, each at most once.
-- ARGV: 1-3 clock, then for each job its head and its body
-- Returns: for each job its id, or the id of the job that has its key, then "created", "existing",
--          "conflict" or "full"
--@adds
--@include at_once
--@include put

return put_all(function(head, body)
  local id, code = find_known(head)
  if id then
    return id, code
  end
  return add_job(head, body, '')
end)
