"""The `windlass` command."""

from __future__ import annotations


def main() -> None:
    """The console script. What it needs is imported here, so that the library never loads it."""
    from windlass.cli.root import run

    run()
