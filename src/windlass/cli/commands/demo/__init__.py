"""`windlass demo`: a demonstration in one minute, on SQLite or on a Redis server."""

from __future__ import annotations

import click

from windlass.cli.commands.worker import require_processes


@click.command(short_help="Run a demo: jobs, a kill -9 in the middle, nothing lost.")
def demo() -> int:
    """Run a demo: a worker, a few hundred jobs, a kill -9 in the middle, and nothing lost.

    It needs no server, touches nothing outside its own folder, and ends in less than a minute.
    Exits with 1 if any job was lost.

    With a Redis url it runs on that server, under its own namespace.

    \b
    windlass demo
    WINDLASS_URL=redis://localhost:6379/0 windlass demo
    """
    require_processes("windlass demo")
    from windlass.cli.commands.demo.show import run_show

    return run_show()
