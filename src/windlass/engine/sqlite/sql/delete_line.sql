-- A line has nothing more, or its queue is paused.
DELETE FROM lines WHERE line = ?1 AND suspect = ?2
