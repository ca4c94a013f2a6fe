-- Remove a line that has no ready jobs, or whose queue is paused.
DELETE FROM lines WHERE line = ?1 AND suspect = ?2
