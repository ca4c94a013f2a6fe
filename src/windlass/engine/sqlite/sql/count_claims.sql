-- How many jobs of each queue are held under the token that is given with them, in an array that begins with both.
SELECT jobs.queue, count(*)
FROM json_each(?1) AS given JOIN jobs ON jobs.id = given.value ->> 0 AND jobs.token = given.value ->> 1
GROUP BY jobs.queue
