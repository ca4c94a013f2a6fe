"""`windlass schedule`: list, pause, resume, run and remove schedules."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

import click

from windlass.cli.support.connection import connected
from windlass.cli.support.group import SuggestingGroup
from windlass.cli.support.output import print_json, print_list, print_table, report, say
from windlass.cli.support.parameters import WholeNumber, json_option, yes_option
from windlass.cli.support.task_names import schedule_name
from windlass.cli.support.wording import age, seconds
from windlass.errors import DecodeError

if TYPE_CHECKING:
    from windlass import ScheduleInfo, Windlass

_name = click.argument("name", metavar="NAME")


@click.group(cls=SuggestingGroup)
def schedule() -> None:
    """List schedules; pause, resume, run or remove them. The end of a name is enough, such as
    `nightly` for shop.tasks.nightly, if no other schedule has that end.

    \b
    windlass schedule list --app shop.tasks:app
    windlass schedule next nightly
    """


@schedule.command("list")
@connected
@json_option
def list_(app: Windlass, as_json: bool) -> None:
    """List schedules by name.

    \b
    windlass schedule list --app shop.tasks:app
    """
    print_list(
        app.schedules.list(),
        lambda shown: [_described(info) for info in shown],
        ["name", "state", "task", "next", "last", ">late", ">left out", "schedule"],
        _row,
        none="No schedules.",
        as_json=as_json,
    )


def _row(info: ScheduleInfo) -> tuple[object, ...]:
    timing = "" if info.schedule is None else info.schedule.describe()
    next_run = age(info.next_at) if info.state in ("active", "unreadable") else ""
    last = (age(info.last_at), seconds(info.last_late_s))
    return (info.name, info.state, info.task, next_run, *last, info.skipped, timing)


def _described(info: ScheduleInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "state": info.state,
        "task": info.task,
        "queue": info.queue,
        "schedule": None if info.schedule is None else info.schedule.describe(),
        "is_declared": info.is_declared,
        "next_at": info.next_at,
        "last_at": info.last_at,
        "last_late_s": info.last_late_s,
        "skipped": info.skipped,
        "unfinished": info.unfinished,
    }


@schedule.command("next", short_help="Print the next runs of a schedule.")
@_name
@click.option(
    "-n",
    "--number",
    default=5,
    show_default=True,
    type=WholeNumber(1, 1000),
    metavar="N",
    help="How many.",
)
@connected
@json_option
def next_(app: Windlass, name: str, number: int, as_json: bool) -> None:
    """Print the next runs, in the time zone of the schedule and in UTC.

    \b
    windlass schedule next nightly -n 5
    """
    name = schedule_name(app, name)
    info = app.schedules.get(name)
    zone_name, zone = _zone_of(info)
    runs = info.upcoming(number)
    if as_json:
        local = [run.astimezone(zone).isoformat() for run in runs]
        print_json({"name": name, "state": info.state, "zone": zone_name, "next": local})
        return
    if runs:
        rows = [(_clock(run.astimezone(zone)), zone_name, _clock(run), age(run)) for run in runs]
        print_table(["local time", "zone", "UTC", "when"], rows)
    if info.state != "active":
        say(f"The schedule {name} is {info.state}: {_WHY.get(info.state, '')}.")


_WHY = {
    "paused": "these runs start only after a resume",
    "abandoned": "no worker has declared it for a day, and these runs start only after one does",
    "over": "there are no more runs",
}


def _zone_of(info: ScheduleInfo) -> tuple[str, tzinfo]:
    from windlass.core.schedules.time_zones import zone_named

    name = getattr(info.schedule, "tz", None)  # intervals have none
    return (name, zone_named(name)) if name else ("UTC", UTC)


def _clock(moment: datetime) -> str:
    return moment.strftime("%a %Y-%m-%d %H:%M:%S")


@schedule.command(short_help="Enqueue an additional run now.")
@_name
@connected
@json_option
def run(app: Windlass, name: str, as_json: bool) -> None:
    """Enqueue an additional run now. Prints the id of the job.

    \b
    windlass schedule run nightly
    """
    job = app.schedules.run_now(schedule_name(app, name))
    report({"id": job.id, "task": job.task}, job.id, as_json)


@schedule.command(short_help="Pause a schedule.")
@_name
@connected
@json_option
def pause(app: Windlass, name: str, as_json: bool) -> None:
    """Pause a schedule: it makes no jobs until it is resumed. Existing jobs stay.

    \b
    windlass schedule pause nightly
    """
    name = schedule_name(app, name)
    app.schedules.pause(name)
    info = app.schedules.get(name)
    report(_described(info), f"The schedule {name} is paused.", as_json, err=True)


@schedule.command(short_help="Resume a paused schedule.")
@_name
@connected
@json_option
def resume(app: Windlass, name: str, as_json: bool) -> None:
    """Resume a paused schedule with its next run. Runs during the pause are skipped.

    \b
    windlass schedule resume nightly
    """
    name = schedule_name(app, name)
    app.schedules.resume(name)
    info = app.schedules.get(name)
    next_run = age(info.next_at) or "none"
    told = f"The schedule {name} is {info.state}; its next run is {next_run}."
    report(_described(info), told, as_json, err=True)


@schedule.command(short_help="Forget a schedule.")
@_name
@yes_option
@connected
def remove(app: Windlass, name: str, yes: bool) -> None:
    """Remove a schedule. Its jobs stay. A schedule that running workers declare is refused.

    \b
    windlass schedule remove nightly --yes
    """
    name = schedule_name(app, name)
    with suppress(DecodeError):  # an unreadable schedule can be removed
        app.schedules.get(name)
    if not yes:
        click.confirm(f"Remove the schedule {name} permanently?", abort=True, err=True)
    app.schedules.remove(name)
    say(f"The schedule {name} is removed.")
