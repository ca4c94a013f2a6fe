-- The index entry of a line (1), and the first job in it (0).
SELECT 1, suspect, cohort, rank, place FROM lines WHERE line = ?1
UNION ALL
SELECT 0, 0, '', rank, place FROM (
    SELECT rank, place FROM jobs
    WHERE state = 'ready' AND hold = 'none' AND queue = ?1 AND suspect = 0 ORDER BY rank, place LIMIT 1
) AS found
UNION ALL
SELECT 0, 1, '', rank, place FROM (
    SELECT rank, place FROM jobs
    WHERE state = 'ready' AND hold = 'none' AND queue = ?1 AND suspect = 1 ORDER BY rank, place LIMIT 1
) AS found
