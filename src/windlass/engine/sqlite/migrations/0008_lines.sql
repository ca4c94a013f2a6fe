-- The index of lines: one row for each line that has something ready, but for those of paused queues, so
-- that a claim finds the best line without looking at the others. Queues that age alike are a group: by
-- what their ages differ, the rank of the first job is set right, so that ranks of a group compare.
CREATE TABLE lines (
    line TEXT NOT NULL,
    suspect INTEGER NOT NULL,
    labels TEXT NOT NULL,               -- those that the line requires, each with a plus before it
    cohort TEXT NOT NULL,               -- the group; "" for queues that do not age
    rank INTEGER NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (line, suspect)
) STRICT, WITHOUT ROWID;
CREATE INDEX lines_next ON lines (suspect, labels, cohort, rank, place);

WITH settings (queue, paused, period_ms, age, since_ms) AS (
    SELECT key, value ->> 0, value ->> 1, value ->> 2, value ->> 3
    FROM meta, json_each(CASE queues WHEN '' THEN '{}' ELSE queues END)
), heads AS (
    SELECT queue AS line, suspect, rank, place, instr(queue || '+', '+') AS plus,
           row_number() OVER (PARTITION BY queue, suspect ORDER BY rank, place) AS number
    FROM jobs WHERE state = 'ready' AND hold = 'none'
)
INSERT INTO lines
SELECT line, suspect, substr(line, plus),
       CASE WHEN coalesce(period_ms, 0) > 0 THEN period_ms || ' ' || (since_ms % period_ms) ELSE '' END,
       rank - coalesce(CASE WHEN period_ms > 0 THEN age - since_ms / period_ms ELSE age END, 0), place
FROM heads LEFT JOIN settings ON settings.queue = substr(line, 1, plus - 1)
WHERE number = 1 AND NOT coalesce(paused, 0);
