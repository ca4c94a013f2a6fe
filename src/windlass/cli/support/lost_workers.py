"""Print sessions that were lost, and jobs that are suspected of killing processes."""

from __future__ import annotations

from collections import Counter
from typing import Final

from windlass.app import Windlass
from windlass.cli.support.output import print_json, print_table, say
from windlass.cli.support.wording import age
from windlass.lost_sessions import MAX_KEPT, LostSession, SuspectJob

#: The last column of a session lists its jobs by their state now.
_REMOVED: Final = "removed"


def print_lost(app: Windlass, as_json: bool) -> None:
    """Print all lost sessions that the engine keeps, and the suspects."""
    sessions, suspects = app.lost_sessions(MAX_KEPT), app.crash_suspects()
    if as_json:
        print_json({"sessions": sessions, "suspects": suspects})
        return
    if sessions:
        columns = ["lost", "worker", "session", "kind", "cause", ">jobs", "now"]
        print_table(columns, map(_session_row, sessions))
    else:
        say("No lost sessions.")
    jobs = [*suspects.waiting, *suspects.dead]
    if jobs:
        say("")
        print_table(["job", "task", "queue", "state", ">crashes", ">losses"], map(_job_row, jobs))
    else:
        say("No crash suspects.")
    if not suspects.is_exact:
        say(f"More than {len(suspects.waiting)} jobs wait to run alone.")


def _session_row(lost: LostSession) -> tuple[object, ...]:
    states = Counter(_REMOVED if job.state is None else str(job.state) for job in lost.jobs)
    now = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    return age(lost.at), lost.worker, lost.session, lost.kind, lost.cause, lost.job_count, now


def _job_row(job: SuspectJob) -> tuple[object, ...]:
    return job.id, job.task, job.queue, job.state, job.crashes, job.losses
