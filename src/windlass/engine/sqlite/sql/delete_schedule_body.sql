-- Remove what a schedule was about.
DELETE FROM schedule_bodies WHERE schedule = ?
