-- Change how many records a queue has in a state. A wrong counter never stops a job: it is never
-- less than zero, and a repair corrects it.
INSERT INTO counters (queue, state, number) VALUES (?1, ?2, max(?3, 0))
ON CONFLICT (queue, state) DO UPDATE SET number = max(number + ?3, 0)
