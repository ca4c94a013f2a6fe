-- Remove the body of a schedule.
DELETE FROM schedule_bodies WHERE schedule = ?
