-- Remove a schedule.
DELETE FROM schedules WHERE row = ?
