"""What commands say of the outbox of an app: a check for `windlass doctor`, a line for `windlass
status`, and its migration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from windlass.cli.support.wording import count, span
from windlass.engine.contract import Finding, Grade
from windlass.errors import EngineError
from windlass.outbox.connect import open_outbox
from windlass.outbox.rows import MOST_COUNTED, OutboxState
from windlass.outbox.url import OutboxUrl

#: A job that waits for longer, in milliseconds, finds no relay: workers look every second.
LATE_MS: Final = 10_000


def examine_outbox(url: OutboxUrl) -> Iterator[Finding]:
    """Check the tables of an outbox, and whether workers relay what waits there."""
    if not url:
        return
    try:
        state = read_state(url)
    except EngineError as error:
        yield Finding(Grade.PROBLEM, "outbox", str(error))
        return
    if state.oldest_ms > LATE_MS:
        advice = "no worker relays them. Start one whose app has the same setting outbox"
        yield Finding(Grade.PROBLEM, "outbox", f"{describe_state(url, state)}: {advice}")
    elif state.first_refused is None:
        yield Finding(Grade.OK, "outbox", describe_state(url, state))
    refused = state.first_refused
    if refused is not None:
        tries = count(refused.tries, "try", "tries")
        jobs = count(state.refused, "job")
        text = f"the engine refuses {jobs} of {url.location}: {refused.id} after {tries}"
        advice = "Fix the cause; jobs are tried again every ten minutes"
        yield Finding(Grade.PROBLEM, "outbox", f"{text}, {refused.error.rstrip('.')}. {advice}")


def read_state(url: OutboxUrl) -> OutboxState:
    with closing(open_outbox(url)) as rows:
        rows.check_format()
        return rows.state()


def describe_state(url: OutboxUrl, state: OutboxState) -> str:
    if not state.waiting:
        return f"no job waits in {url.location}"
    most = "at least " if state.waiting >= MOST_COUNTED else ""
    waiting = f"{most}{count(state.waiting, 'job waits', 'jobs wait')} in {url.location}"
    if not state.oldest_ms:
        return waiting
    return f"{waiting}, the first one for {span(state.oldest_ms // 1_000 * 1_000)}"


def migrate_outbox(url: OutboxUrl) -> int:
    """Make the tables; return their format."""
    with closing(open_outbox(url)) as rows:
        return rows.migrate()
