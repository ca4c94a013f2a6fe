-- What a session says of itself, for people: opaque to the engine.
ALTER TABLE sessions ADD COLUMN info BLOB NOT NULL DEFAULT x'';
