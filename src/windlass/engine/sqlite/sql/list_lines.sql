-- The best lines of a group, behind a rank and a place.
SELECT rank, place, line FROM lines
WHERE suspect = ?1 AND labels = ?2 AND cohort = ?3 AND (rank, place) > (?4, ?5) ORDER BY rank, place LIMIT ?6
