-- The longest lease of the workers that were heard of lately: see core.longest_lease.
ALTER TABLE meta ADD COLUMN longest_lease_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN longest_until_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN next_lease_ms INTEGER NOT NULL DEFAULT 0;
