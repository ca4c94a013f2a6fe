-- Documents, and the audit trail.

-- name: add_audit
-- Add an entry to the audit trail; a known id changes nothing.
INSERT INTO windlass.audit (id, at_ms, body) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING

-- name: count_documents
-- The number of documents of a kind.
SELECT count(*) FROM windlass.documents WHERE kind = $1

-- name: delete_document
-- Remove a document.
DELETE FROM windlass.documents WHERE kind = $1 AND key = $2

-- name: find_document
-- The revision of a document.
SELECT revision FROM windlass.documents WHERE kind = $1 AND key = $2 FOR UPDATE

-- name: list_audit
-- Entries of the audit trail before an id, the last one first.
SELECT id, at_ms, body FROM windlass.audit WHERE id < $1 ORDER BY id DESC LIMIT $2

-- name: list_documents
-- The next documents of a kind by key.
SELECT key, revision, body FROM windlass.documents WHERE kind = $1 AND key > $2 ORDER BY key LIMIT $3

-- name: read_documents
-- The documents of a kind with these keys.
SELECT found.* FROM unnest($2::text[]) AS given (value) CROSS JOIN LATERAL (
    SELECT key, revision, body FROM windlass.documents WHERE kind = $1 AND key = given.value LIMIT 1
) AS found

-- name: save_document
-- Store a new or changed document.
INSERT INTO windlass.documents (kind, key, revision, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (kind, key) DO UPDATE SET revision = $3, body = $4

-- name: trim_audit
-- Remove the entries that were added first, above a number.
DELETE FROM windlass.audit WHERE row <= (SELECT max(row) FROM windlass.audit) - $1
