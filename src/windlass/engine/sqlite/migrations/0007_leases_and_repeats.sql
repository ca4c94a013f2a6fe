-- The longest lease of the workers that were heard of lately: see core.longest_lease.
ALTER TABLE meta ADD COLUMN longest_lease_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN longest_until_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN next_lease_ms INTEGER NOT NULL DEFAULT 0;

-- Puts whose call a unique job has had, and has no more because a later put replaced it: a repeat of
-- such a put is known by its id.
CREATE TABLE replaced_puts (
    id TEXT PRIMARY KEY,
    job TEXT NOT NULL,
    expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX replaced_puts_expiry ON replaced_puts (expires_ms);
