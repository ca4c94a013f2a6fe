"""The `windlass` command."""

from __future__ import annotations


def main() -> None:
    """Run the console script. Imports are inside: the library never loads the command line."""
    from windlass.cli.root import run

    run()
