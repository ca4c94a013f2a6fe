-- Forget the idempotency key of a job that an operator removed.
DELETE FROM idempotency WHERE id = ?
