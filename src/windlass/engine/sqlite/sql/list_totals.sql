-- The totals of events.
SELECT name, number FROM totals
