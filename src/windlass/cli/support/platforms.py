"""Commands that do not run on all operating systems."""

from __future__ import annotations

import sys

import click

#: A variable, so that a type checker sees what follows on every system.
_PLATFORM: str = sys.platform


def require_processes(command: str) -> None:
    """Refuse Windows: supervisors and their children need sockets and signals that it lacks."""
    if _PLATFORM == "win32":
        raise click.UsageError(
            f"Expected Linux or macOS for `{command}`, found Windows. On Windows run jobs inside "
            "your own program, in `with app.worker():`."
        )
