"""Print the results of a change of jobs given by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from windlass.app import Windlass
from windlass.cli.support.audit_trail import note
from windlass.cli.support.output import print_json, print_table, say
from windlass.core.states import State
from windlass.engine.contract import BATCH, CancelCode, ChangeCode
from windlass.errors import JobNotFound

Codes = Sequence[CancelCode] | Sequence[ChangeCode]
_DONE: Final = (CancelCode.CANCELLED, CancelCode.REQUESTED, ChangeCode.DONE)


def print_codes(
    app: Windlass, ids: Sequence[str], codes: Codes, as_json: bool, allowed: str = ""
) -> None:
    """Print the outcome for each id. `allowed` says which jobs can be changed in this way."""
    verdicts = dict(zip(ids, codes, strict=True))
    done = sum(code in _DONE for code in codes)
    note(done=done, refused=len(codes) - done)
    if as_json:
        print_json(verdicts)
    else:
        print_table(["id", "verdict"], verdicts.items())
    refused = [job_id for job_id, code in verdicts.items() if code is ChangeCode.REFUSED]
    states = _read_states(app, refused)
    for job_id, code in verdicts.items():
        if code in (CancelCode.UNKNOWN, ChangeCode.UNKNOWN):
            say(f"Error: {JobNotFound(job_id, app.engine.location)}")
        if code is ChangeCode.REFUSED:
            state = f"it is {states[job_id]}. " if job_id in states else ""
            say(f"Job {job_id} was not changed: {state}{allowed}.")
        if code is ChangeCode.DUPLICATE:
            say(f"Job {job_id} was not changed: another job holds its unique key.")


def _read_states(app: Windlass, ids: Sequence[str]) -> dict[str, State]:
    """The states of these jobs, without jobs that were removed meanwhile."""
    parts = (ids[at : at + BATCH] for at in range(0, len(ids), BATCH))
    records = (record for part in parts for record in app.engine.get(part))
    return {record.id: record.state for record in records if record is not None}


def exit_code(codes: Codes, successes: set[CancelCode] | set[ChangeCode]) -> int:
    failed = sum(code not in successes for code in codes)
    if failed:
        say(f"Not changed: {failed} of {len(codes)}.")
    return 1 if failed else 0
