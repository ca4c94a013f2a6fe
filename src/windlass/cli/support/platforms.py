"""Which commands need a system that not everybody has."""

from __future__ import annotations

import sys

import click

#: A variable, so that a type checker sees what follows on every system.
_PLATFORM: str = sys.platform


def require_processes(command: str) -> None:
    """Supervisors and their children talk over sockets and signals that Windows does not have."""
    if _PLATFORM == "win32":
        raise click.UsageError(
            f"Expected Linux or macOS for `{command}`, found Windows. Run jobs there inside a "
            "program of yours, in `with app.worker():`."
        )
