-- The settings of queues that have others than the usual ones: JSON, queue -> array of settings. In
-- the row that every call reads anyway, so that queues without settings cost nothing.
ALTER TABLE meta ADD COLUMN queues TEXT NOT NULL DEFAULT '';
-- The age of its queue when a job took its place. It is in `rank` too, which is age less priority.
ALTER TABLE jobs ADD COLUMN age INTEGER NOT NULL DEFAULT 0;
