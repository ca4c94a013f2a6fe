-- The instant before which no session is declared dead.
SELECT reap_after_ms FROM meta
