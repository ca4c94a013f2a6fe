"""Shared code of commands: connection, options, output, tables of jobs and workers."""
