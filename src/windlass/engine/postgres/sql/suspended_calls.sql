-- Calls of processes that were suspended while the server waited for them.

-- name: list_silent_calls
-- Calls for whose client the server waits: the backend, when it started, since when the call has had no progress, for
-- how many milliseconds, how many it may take, and the client. Their statements begin with a mark. Leaves out calls that
-- this role may not end.
SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint, (extract(epoch FROM state_change) * 1000000)::bigint,
       (extract(epoch FROM clock_timestamp() - state_change) * 1000)::bigint,
       coalesce(substring(query FROM '^/\* \w+ \w+ (\d{1,15}) ms \*/')::bigint, 0),
       application_name, host(client_addr), client_port
FROM pg_stat_activity
WHERE datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()
      AND state = 'active' AND wait_event_type = 'Client' AND starts_with(query, $1)
      AND (pg_has_role(usesysid, 'USAGE')
           OR pg_has_role('pg_signal_backend', 'USAGE') AND NOT (SELECT rolsuper FROM pg_roles WHERE oid = usesysid))

-- name: end_silent_call
-- Terminate the backend of a call, unless the call has made progress since it was listed.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = $1 AND (extract(epoch FROM backend_start) * 1000000)::bigint = $2
      AND (extract(epoch FROM state_change) * 1000000)::bigint = $3
      AND state = 'active' AND wait_event_type = 'Client'
