-- List a line by a new job, unless its first job comes before it.
INSERT INTO lines (line, suspect, labels, cohort, rank, place) VALUES (?1, 0, ?2, ?3, ?4, ?5)
ON CONFLICT (line, suspect) DO UPDATE SET cohort = ?3, rank = ?4, place = ?5
WHERE (?4, ?5) < (rank, place)
