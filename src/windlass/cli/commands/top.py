"""`windlass top`: a live view of queues, their load, rates, workers and running jobs.

A snapshot reads counters, sessions and the last minutes of the history; its cost does not grow with
the number of jobs. The rates in the second line are the difference of two snapshots. The load of
each queue is that of `/v1/scale`, with rates and quantiles of the last 5 minutes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click
import msgspec

from windlass.app import Windlass
from windlass.cli.commands.workers import queues_of, running_jobs
from windlass.cli.support.connection import connect
from windlass.cli.support.loads import describe_stats, fit_queue_rows, queue_row
from windlass.cli.support.output import (
    STATE_STYLES,
    console,
    is_on_terminal,
    new_table,
    print_json,
    print_trimmed,
    printable,
    say,
)
from windlass.cli.support.parameters import connection_options, duration, json_option
from windlass.cli.support.wording import age, span
from windlass.core.queues.load import QueueLoad
from windlass.core.states import State
from windlass.engine.contract import Engine, Stats
from windlass.errors import EngineUnavailable
from windlass.fleet import WorkerInfo, WorkerState, read_fleet
from windlass.history import Activity
from windlass.queue_loads import read_loads_and_activity

if TYPE_CHECKING:
    from datetime import timedelta

    from rich.console import Group, RenderableType
    from rich.table import Table

#: The counters that are shown as rates per second.
RATES: Final = ("enqueued", "succeeded", "retried", "dead", "cancelled", "crashed", "lost")
#: The largest number of workers, and of running jobs, on the screen.
SHOWN_WORKERS: Final = 20
SHOWN_JOBS: Final = 20
#: The width in a pipe, where nothing is cut.
_WHOLE_LINES: Final = 10_000


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The data of one screen."""

    engine: str
    stats: Stats
    rates: Mapping[str, float]  # per second
    loads: Sequence[QueueLoad]
    activity: Mapping[str, Activity]  # by queue, in the last 5 minutes
    workers: Sequence[WorkerInfo]


@click.command(short_help="Watch queues, their load, workers and running jobs.")
@connection_options
@click.option(
    "--interval",
    type=duration,
    default="1s",
    show_default=True,
    metavar="DURATION",
    help="Refresh interval.",
)
@click.option("--once", is_flag=True, help="Take two snapshots, print, and exit.")
@json_option
def top(
    app_path: str | None, url: str | None, interval: timedelta, once: bool, as_json: bool
) -> None:
    """Watch queues, their load, workers and running jobs. Ctrl-C ends it.

    The load of a queue has rates, the time that jobs wait and run (p50 and p99) and the share of
    failed attempts, all of the last 5 minutes; the time until no job is ready, and the slots that
    the queue needs.

    \b
    windlass top --app shop.tasks:app
    windlass top --url redis://localhost:6379/0 --json
    """
    interval_s = interval.total_seconds()
    if interval_s <= 0:
        raise click.UsageError("Expected an interval of more than 0 for --interval.")
    with connect(app_path, url) as app:
        looks = Looks(app.engine)
        looks.take()
        if as_json or once:
            time.sleep(interval_s)
            _print_once(looks.take(), as_json=as_json)
        else:
            _watch(app, looks, interval_s)


class Looks:
    """Take snapshots, with rates since the previous snapshot."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._totals: Mapping[str, int] = {}
        self._at = 0.0

    def take(self) -> Snapshot:
        stats, at = self._engine.stats(), time.monotonic()
        passed_s = at - self._at
        rates = {
            name: round((stats.totals.get(name, 0) - self._totals.get(name, 0)) / passed_s, 1)
            for name in RATES
        }
        self._totals, self._at = stats.totals, at
        loads, activity = read_loads_and_activity(self._engine)
        return Snapshot(
            engine=self._engine.location,
            stats=stats,
            rates=rates,
            loads=loads,
            activity=activity,
            workers=read_fleet(self._engine),
        )


def _print_once(snapshot: Snapshot, *, as_json: bool) -> None:
    if as_json:
        stats = describe_stats(snapshot.stats)
        print_json({**msgspec.structs.asdict(snapshot), "stats": stats})
    else:
        out = console()
        if not is_on_terminal(out):
            out.width = _WHOLE_LINES
        print_trimmed(out, _screen(snapshot, out.width))


def _watch(app: Windlass, looks: Looks, interval_s: float) -> None:
    """Refresh until Ctrl-C. While the engine is unavailable, keep trying."""
    from rich.console import Console
    from rich.live import Live

    screen = Console()
    if not screen.is_terminal:
        raise click.UsageError(
            "Expected a terminal to draw on, found none. Use --once or --json in scripts."
        )
    try:
        with Live(console=screen, screen=True, auto_refresh=False) as live:
            while True:
                try:
                    live.update(_screen(looks.take(), screen.width), refresh=True)
                except EngineUnavailable as error:
                    live.update(_text(f"{error}"), refresh=True)
                time.sleep(interval_s)
    except KeyboardInterrupt:
        say(f"No longer watching {app.engine.location}.")


# --------------------------------------------------------------------------------------- the screen


def _screen(snapshot: Snapshot, width: int) -> Group:
    from rich.console import Group
    from rich.text import Text

    rates = "  ".join(
        f"{name} {snapshot.rates[name]:g}/s" for name in RATES if _is_shown(snapshot, name)
    )
    parts: list[RenderableType] = [
        Text(printable(snapshot.engine), style="bold"),
        Text(rates),
        Text(),
        _queues(snapshot.stats),
        Text(),
        *_loads(snapshot, width),
        *_workers(snapshot.workers),
    ]
    running = list(running_jobs(snapshot.workers))
    if running:
        parts += [Text(), _running(running[:SHOWN_JOBS]), *_others(len(running) - SHOWN_JOBS)]
    return Group(*parts)


def _others(number: int) -> list[RenderableType]:
    return [_text(f"and {number:,} more", style="dim")] if number > 0 else []


def _is_shown(snapshot: Snapshot, name: str) -> bool:
    """Return whether to show a counter: main counters always, others only if not zero."""
    return name in ("enqueued", "succeeded") or snapshot.stats.totals.get(name, 0) > 0


def _queues(stats: Stats) -> Table:
    states = [state for state in State if any(state in counts for counts in stats.queues.values())]
    table = new_table(["queue", *(f">{state}" for state in states), ">next waits"])
    for queue, counts in sorted(stats.queues.items()):
        waits = stats.oldest_ready_ms.get(queue)
        numbers = (_number(counts.get(state, 0), STATE_STYLES[state]) for state in states)
        table.add_row(_text(queue), *numbers, _text("" if waits is None else span(waits)))
    return table


def _loads(snapshot: Snapshot, width: int) -> list[RenderableType]:
    """The load of queues with jobs, or with some in the last minutes."""
    rows = [
        queue_row(load, snapshot.activity.get(load.queue))
        for load in snapshot.loads
        if load.ready or load.running or load.queue in snapshot.activity
    ]
    columns, shown = fit_queue_rows(rows, width)
    table = new_table(columns)
    for row in shown:
        table.add_row(*map(_cell, row))
    return [table, _text("")] if shown else []


def _workers(fleet: Sequence[WorkerInfo]) -> list[RenderableType]:
    """The workers, the busiest first if the screen has no room for all."""
    if not fleet:
        return [_text("No workers.")]
    if len(fleet) > SHOWN_WORKERS:
        fleet = sorted(fleet, key=lambda worker: -worker.jobs)
    columns = ["worker", "state", ">children", ">slots", ">jobs", "started", "app", "queues"]
    table = new_table(columns)
    for worker in fleet[:SHOWN_WORKERS]:
        busy = "yellow" if worker.jobs else "dim"
        table.add_row(
            _text(f"{worker.host} {worker.place}"),
            _text(worker.state, "" if worker.state is WorkerState.RUNNING else "magenta"),
            _number(len(worker.children)),
            _number(worker.slots),
            _number(worker.jobs, busy),
            _text(age(worker.started_at)),
            _text(worker.app),
            _text(queues_of(worker)),
        )
    return [table, *_others(len(fleet) - SHOWN_WORKERS)]


def _running(rows: Sequence[tuple[object, ...]]) -> Table:
    table = new_table(["job", "task", "queue", ">attempt", "claimed", "by"])
    for row in rows:
        table.add_row(*(_text(str(value)) for value in row))
    return table


def _text(value: str, style: str = "") -> RenderableType:
    from rich.text import Text

    return Text(printable(value).replace("\n", " "), style=style)


def _cell(value: object) -> RenderableType:
    return _number(value) if isinstance(value, int) else _text(str(value))


def _number(value: int, style: str = "") -> RenderableType:
    return _text(f"{value:,}", style if value else "dim")
