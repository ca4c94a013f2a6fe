-- Store when a schedule runs, and what.
INSERT INTO schedule_bodies (schedule, body) VALUES (?1, ?2)
ON CONFLICT (schedule) DO UPDATE SET body = ?2
