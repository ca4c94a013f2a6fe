"""Log expired dead letters before they are removed.

If a worker dies in between, the next worker repeats both: a line may appear twice and is never
missing. A dead letter that cannot be read is logged as unreadable, and does not block the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from logging import getLogger

from windlass.calls.redaction import CallRedactor
from windlass.core.states import State
from windlass.dead_letter import Unreadable, log_summary, read_each
from windlass.engine.contract import Engine, Tended
from windlass.worker.logs.events import LogEvent

log = getLogger("windlass.dead_letters")


def sweep(engine: Engine, ids: Sequence[str], redactor: CallRedactor) -> Tended:
    """Log expired dead letters, then remove them. The ids come from one call of `tend`, which
    limits their total size: so all records are read at once."""
    for record in read_each(engine, ids):
        if isinstance(record, Unreadable):
            log.error(LogEvent.UNREADABLE_JOB_REMOVED, record.id, record.why)
        elif record is not None and record.state is State.DEAD:
            job_id, task, reason, call = log_summary(record, redactor.redact_text)
            log.warning(LogEvent.DEAD_JOB_REMOVED, job_id, task, reason, call)
    return engine.tend(ids)
