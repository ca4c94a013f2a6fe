-- List a line by the first job in it.
INSERT INTO lines (line, suspect, labels, cohort, rank, place) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (line, suspect) DO UPDATE SET cohort = ?4, rank = ?5, place = ?6
