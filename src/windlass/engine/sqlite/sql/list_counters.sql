-- How many records each queue has in each state.
SELECT queue, state, number FROM counters WHERE number > 0
