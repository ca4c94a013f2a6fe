"""The `windlass` command."""

from __future__ import annotations


def main() -> None:
    """The console script. Imports inside, so that the library never loads the command line."""
    from windlass.cli.root import run

    run()
