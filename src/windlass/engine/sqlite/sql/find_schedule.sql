-- Which schedule has a name, and in which revision it is.
SELECT row, revision FROM schedules WHERE name = ?
