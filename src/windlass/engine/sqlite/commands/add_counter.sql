-- Change how many records a queue has in a state. The row may have to be made first: then the check
-- on the number sees the final value, never a negative one on the way.
INSERT INTO counters (queue, state, number) VALUES (?1, ?2, max(?3, 0))
ON CONFLICT (queue, state) DO UPDATE SET number = number + ?3
