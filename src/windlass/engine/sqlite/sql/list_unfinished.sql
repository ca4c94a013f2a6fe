-- Which of these jobs exist and have not ended.
SELECT jobs.id FROM json_each(?) AS given JOIN jobs ON jobs.id = given.value
WHERE state NOT IN ('succeeded', 'dead', 'cancelled')
