"""Code that commands share: connection, options, output, tables of jobs and workers."""
