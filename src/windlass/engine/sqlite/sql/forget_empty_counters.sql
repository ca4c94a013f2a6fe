-- Forget queues that have nothing in a state any more.
DELETE FROM counters WHERE number = 0
