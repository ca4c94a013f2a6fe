"""`windlass worker`: run jobs until a signal stops the worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import click

from windlass.cli.support.connection import (
    AppPath,
    let_children_import,
    named_once,
    require_app_path,
)
from windlass.cli.support.parameters import (
    WholeNumber,
    address,
    child_range,
    duration,
    label,
    log_level_option,
    memory_size,
    tier,
    url_option,
)
from windlass.cli.support.reload import Reloader
from windlass.core.queues.plans import read_tiers

#: A variable, so that type checkers check the code for all systems.
_PLATFORM: str = sys.platform


def require_processes(command: str) -> None:
    """Refuse Windows, which lacks sockets and signals that supervisors and children need."""
    if _PLATFORM == "win32":
        raise click.UsageError(
            f"Expected Linux or macOS for `{command}`, found Windows. On Windows run jobs inside "
            "your own program, in `with app.worker():`."
        )


@click.command()
@click.argument("app_argument", metavar="[MODULE:ATTR]", required=False)
@click.option("--app", "app_path", metavar="MODULE:ATTR", help="The same as the argument.")
@url_option
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    type=tier,
    metavar="NAME[:WEIGHT],...",
    help="Queues to serve, by weight; if repeated, each -q is served before the next. "
    "[default: every queue]",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    type=label,
    metavar="NAME",
    help="Also claim jobs that require this label; can be repeated.",
)
@click.option(
    "-p",
    "--processes",
    type=WholeNumber(1),
    metavar="N",
    help="Child processes. [default: one per core]",
)
@click.option(
    "--autoscale",
    type=child_range,
    metavar="MIN..MAX",
    help="Change the number of child processes by demand, for example 2..8; instead of -p.",
)
@click.option(
    "-c",
    "--slots",
    type=WholeNumber(1, 1000),
    default=10,
    show_default=True,
    metavar="N",
    help="Jobs that one child runs at a time.",
)
@click.option(
    "--max-jobs",
    type=WholeNumber(1),
    metavar="N",
    help="Replace a child after about this many jobs. [default: never]",
)
@click.option(
    "--max-age",
    type=duration,
    metavar="DURATION",
    help="Replace a child after about this time, for example 6h. [default: never]",
)
@click.option(
    "--max-memory",
    type=memory_size,
    metavar="SIZE",
    help="Replace a child that uses more memory, for example 512MB. [default: never]",
)
@click.option(
    "--metrics",
    type=address,
    metavar="HOST:PORT",
    help="Serve metrics for Prometheus here, for example 127.0.0.1:9464 or :9464; port 0 takes a "
    "free one. [default: none]",
)
@log_level_option
@click.option("--burst", is_flag=True, help="Exit when no job is left to run.")
@click.option("--reload", is_flag=True, help="Restart when a source file changes.")
@click.pass_context
def worker(
    ctx: click.Context,
    app_argument: str | None,
    app_path: str | None,
    url: str | None,
    queues: Sequence[str],
    labels: Sequence[str],
    processes: int | None,
    autoscale: tuple[int, int] | None,
    slots: int,
    max_jobs: int | None,
    max_age: timedelta | None,
    max_memory: int | None,
    metrics: str | None,
    log_level: str | None,
    burst: bool,
    reload: bool,
) -> int:
    """Run the jobs of an app.

    SIGTERM or Ctrl-C lets running jobs end first; a second one returns them to the queue at once.

    \b
    windlass worker shop.tasks:app
    windlass worker shop.tasks:app -q critical -q default:5,low:1 -p 4 -c 20
    windlass worker shop.tasks:app --autoscale 2..8
    """
    require_processes("windlass worker")
    least, most = _read_processes(processes, autoscale, burst=burst)
    from windlass.worker.options import WorkerOptions
    from windlass.worker.supervisor.supervisor import Supervisor

    path = require_app_path(named_once(app_argument, app_path))
    let_children_import(path)
    if reload:
        if burst:
            raise click.UsageError("Expected --burst or --reload, found both.")
        return _reloader(ctx, path).run()
    options = WorkerOptions(
        app=path.target,
        queues=_apart(queues),
        processes=least,
        most_processes=most,
        slots=slots,
        url=url,
        max_jobs=max_jobs,
        max_age_ms=None if max_age is None else max_age // timedelta(milliseconds=1),
        max_memory=max_memory,
        burst=burst,
        labels=tuple(labels),
        log_level=log_level,
        metrics=metrics,
    )
    return Supervisor(options).run()


def _read_processes(
    processes: int | None, autoscale: tuple[int, int] | None, *, burst: bool
) -> tuple[int, int | None]:
    """Return the number of children at the start, and the largest number if it may change."""
    if autoscale is None:
        return processes or os.cpu_count() or 1, None
    if processes is not None:
        raise click.UsageError(
            "Expected -p or --autoscale, found both: -p is a fixed number of children."
        )
    if burst:
        raise click.UsageError(
            "Expected --burst or --autoscale, found both: a burst runs a fixed number of children, "
            "which -p gives."
        )
    return autoscale


def _reloader(ctx: click.Context, path: AppPath) -> Reloader:
    given = ctx.params
    arguments = ["worker", path.target, f"--slots={given['slots']}"]
    arguments += [f"--queue={queue}" for queue in given["queues"]]
    arguments += [f"--label={label}" for label in given["labels"]]
    if given["max_age"] is not None:
        given = {**given, "max_age": f"{given['max_age'].total_seconds():.3f}"}
    if given["autoscale"] is not None:
        arguments.append("--autoscale={}..{}".format(*given["autoscale"]))
    for name in ("url", "processes", "max_jobs", "max_age", "max_memory", "metrics", "log_level"):
        if given[name] is not None:
            arguments.append(f"--{name.replace('_', '-')}={given[name]}")
    return Reloader(arguments, list(dict.fromkeys([Path.cwd(), path.folder])))


def _apart(queues: Sequence[str]) -> tuple[str, ...]:
    try:
        read_tiers(queues)
    except ValueError as error:
        raise click.UsageError(f"Invalid value for -q: {error}.") from error
    return tuple(queues)
