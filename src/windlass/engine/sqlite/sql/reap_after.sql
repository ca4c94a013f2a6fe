-- The instant before which no session is declared dead, and the settings of queues.
SELECT reap_after_ms, queues FROM meta
