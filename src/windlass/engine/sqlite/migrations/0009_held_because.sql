-- Why a worker could not run a job that is held as unroutable.
ALTER TABLE jobs ADD COLUMN held_because BLOB;
