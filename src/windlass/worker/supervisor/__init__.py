"""The supervisor: the process that starts, watches and replaces the children of a worker."""
