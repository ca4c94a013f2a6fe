"""`python -m windlass` is the `windlass` command."""

from windlass_probe import command

command()
