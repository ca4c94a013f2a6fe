-- The highest number that a job has as its row.
SELECT max(row) FROM jobs
