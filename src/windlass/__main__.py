"""Run the `windlass` command as `python -m windlass`."""

from windlass_probe import command

command()
