"""`windlass demo`: a demonstration in one minute, or live with its dashboard."""

from __future__ import annotations

import click

from windlass.cli.commands.worker import require_processes
from windlass.cli.support.parameters import WholeNumber


@click.command(short_help="Run a demo: jobs, a kill -9 in the middle, nothing lost.")
@click.option("--serve", is_flag=True, help="Run a shop under load, and serve its dashboard.")
@click.option(
    "--port",
    type=WholeNumber(0, 65535),
    metavar="N",
    help="With --serve, listen on this port. [default: a free one]",
)
def demo(serve: bool, port: int | None) -> int:
    """Run a demo: a worker, a few hundred jobs, a kill -9 in the middle, and nothing lost.

    It needs no server, touches nothing outside its own folder, and ends in less than a minute.
    Exits with 1 if any job was lost.

    With --serve it runs a shop under load instead, with its past and its dashboard, on a loopback
    address that it prints. SIGTERM or Ctrl-C ends it.

    With a Redis url it runs on that server, under its own namespace; with a PostgreSQL url, in its
    own schema.

    \b
    windlass demo
    windlass demo --serve
    WINDLASS_URL=redis://localhost:6379/0 windlass demo
    """
    require_processes("windlass demo")
    if serve:
        from windlass.cli.commands.demo.live.session import run_live
        from windlass.cli.commands.serve import require_extra

        require_extra("demo --serve")
        return run_live(port or 0)
    if port is not None:
        raise click.UsageError("Expected --serve with --port: only the live demo listens.")
    from windlass.cli.commands.demo.show import run_show

    return run_show()
