"""`windlass copy`: copy all jobs, schedules, queue settings and keys to another engine."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

import click

from windlass.cli.support.audit_trail import note
from windlass.cli.support.bulk import Show, showing, stopping
from windlass.cli.support.connection import connect
from windlass.cli.support.output import FAILED, print_json, print_table, say, tell
from windlass.cli.support.parameters import json_option
from windlass.cli.support.wording import count, program
from windlass.engine_copy.copier import Copier, CopyReport, CopyStep
from windlass.engine_copy.undo import undo

#: How often running jobs are looked at, in seconds.
LOOK_S: Final = 0.25
#: List at most this many jobs that were not copied.
LISTED: Final = 20


@click.command(short_help="Copy jobs to another engine.")
@click.option(
    "--from", "source_url", metavar="URL", required=True, help="The engine that has the jobs."
)
@click.option("--to", "target_url", metavar="URL", required=True, help="The engine that gets them.")
@click.option(
    "--drain",
    is_flag=True,
    help="Let workers of the source finish their running jobs and claim no more.",
)
@click.option(
    "--undo",
    "undoes",
    is_flag=True,
    help="End a copy that is not complete: remove the copied jobs, and open the source.",
)
@json_option
def copy(source_url: str, target_url: str, drain: bool, undoes: bool, as_json: bool) -> int:
    """Copy waiting jobs and dead letters to another engine, with schedules, queue settings and
    keys. Both sides are paused meanwhile. A killed copy continues when you give the command
    again. Afterwards the target runs the jobs, and the source keeps them and stays paused.

    Exits with 1 if the sides differ in the end, or while workers of the source run.

    \b
    windlass copy --from sqlite:///jobs.db --to redis://localhost:6379/0
    windlass copy --from sqlite:///jobs.db --to redis://localhost:6379/0 --drain
    """
    if drain and undoes:
        raise click.UsageError("--drain is not for --undo: leave it out.")
    with connect(None, source_url) as source, connect(None, target_url, even_unused=True) as target:
        note(source=source.engine.location, target=target.engine.location)
        if undoes:
            is_whole = _follow(undo(source.engine, target.engine))
            if is_whole:
                _tell_undone(source.engine.location, target.engine.location, as_json)
            return 0 if is_whole else FAILED
        copier = Copier(source.engine, target.engine, drains=drain)
        if not _follow(copier.run()):
            return FAILED
        report = copier.report()
        note(copied=report.copied, complete=report.is_complete)
    _print_report(report, drain=drain, as_json=as_json)
    return 0 if report.is_complete else FAILED


def _follow(steps: Iterable[CopyStep]) -> bool:
    """Run all steps and show their progress; return False if Ctrl-C has ended them."""
    with stopping() as stop, _Display() as display:
        for step in steps:
            display.show(step)
            if stop.wait(LOOK_S if step.is_waiting else 0):
                say(
                    "Stopped between two steps. Both sides stay paused: the same command "
                    "continues, and with --undo it ends the copy."
                )
                return False
    return True


class _Display(ExitStack):
    """Shows steps: a bar on a terminal for each kind, else a line every few seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._doing = ""
        self._done = 0
        self._show: Show = lambda _number: None

    def show(self, step: CopyStep) -> None:
        if step.doing != self._doing:
            self.close()
            self._doing, self._done = step.doing, 0
            self._show = self.enter_context(showing(step.doing.capitalize(), step.total))
        self._show(step.done - self._done)
        self._done = step.done


# ------------------------------------------------------------------------------------------ output


def _tell_undone(source: str, target: str, as_json: bool) -> None:
    if as_json:
        print_json({"source": source, "target": target, "undone": True})
    else:
        tell(f"The copy is undone. {source} is open as before; {target} has no copied jobs.")


def _print_report(report: CopyReport, *, drain: bool, as_json: bool) -> None:
    if as_json:
        print_json(report)
    elif report.jobs:
        rows = [(one.queue, one.state, one.source, one.target) for one in report.jobs]
        print_table(["queue", "state", ">source", ">target"], rows)
    if not as_json:
        say(_summary(report))
    for id in report.refused[:LISTED]:
        say(f"{id}: another job of the target holds its key.")
    if not report.is_complete:
        say(_advice(report))
    elif not as_json:
        say(_what_is_left(report, drain=drain))


def _summary(report: CopyReport) -> str:
    parts = [
        f"{count(report.copied, 'job')} copied in this run",
        count(report.keys, "idempotency key"),
        count(report.schedules, "schedule"),
    ]
    late = " This run looked only at jobs that came after the first copy." if report.is_late else ""
    renamed = (
        f" {count(report.renamed, 'job')} got another id, in the partition of a key or schedule."
        if report.renamed
        else ""
    )
    return f"{report.source} -> {report.target}: {', '.join(parts)}.{renamed}{late}"


def _advice(report: CopyReport) -> str:
    if report.refused:
        number = len(report.refused)
        return (
            f"The copy is not complete: in the target, other jobs hold the keys of "
            f"{count(number, 'job')}. Cancel one of the two with `{program()} job cancel`, and "
            "give this command again. Both sides stay paused."
        )
    return (
        "The copy is not complete: the sides differ, because something else changes their jobs, or "
        f"counts them wrong. `{program()} check` compares records and counters of an engine. Then "
        "give this command again. Both sides stay paused."
    )


def _what_is_left(report: CopyReport, *, drain: bool) -> str:
    quiet = " Stop its workers, which are quiet." if drain else ""
    newer = (
        f" Meanwhile {count(report.newer, 'job')} arrived there: give producers the new url, then "
        "give this command again."
        if report.newer
        else ""
    )
    return (
        f"Complete: the target runs the jobs now. {report.source} keeps its jobs, with all queues "
        f"and schedules paused: do not resume them.{quiet}{newer}"
    )
