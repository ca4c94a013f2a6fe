-- Count an event.
INSERT INTO totals (name, number) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET number = number + ?2
