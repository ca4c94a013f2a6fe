"""Print the results of a change of jobs given by id."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.app import Windlass
from windlass.cli.support.output import print_json, print_table, say
from windlass.engine.contract import CancelCode, ChangeCode
from windlass.errors import JobNotFound

Codes = Sequence[CancelCode] | Sequence[ChangeCode]


def print_codes(
    app: Windlass, ids: Sequence[str], codes: Codes, as_json: bool, why_refused: str = ""
) -> None:
    """Print the outcome for each id."""
    verdicts = dict(zip(ids, codes, strict=True))
    if as_json:
        print_json(verdicts)
    else:
        print_table(["id", "verdict"], verdicts.items())
    for job_id, code in verdicts.items():
        if code in (CancelCode.UNKNOWN, ChangeCode.UNKNOWN):
            say(f"Error: {JobNotFound(job_id, app.engine.location)}")
        if code is ChangeCode.REFUSED:
            say(f"Job {job_id} was not changed: {why_refused}.")
        if code is ChangeCode.DUPLICATE:
            say(f"Job {job_id} was not changed: another job holds its unique key.")


def exit_code(codes: Codes, successes: set[CancelCode] | set[ChangeCode]) -> int:
    failed = sum(code not in successes for code in codes)
    if failed:
        say(f"Not changed: {failed} of {len(codes)}.")
    return 1 if failed else 0
