-- When the claim began whose end is an entry of a history; not known of older ones.
ALTER TABLE failures ADD COLUMN started_ms INTEGER;
