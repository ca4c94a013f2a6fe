-- Note the age of its queue with a job that takes its place.
UPDATE jobs SET rank = rank - age + ?2, age = ?2 WHERE row = ?1
