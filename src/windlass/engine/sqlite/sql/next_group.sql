-- The next group of lines, from labels and a cohort on.
SELECT labels, cohort FROM lines
WHERE suspect = ?1 AND (labels, cohort) >= (?2, ?3) ORDER BY labels, cohort LIMIT 1
