"""The hot paths in one round trip: a put of plain jobs, and a turn of a worker that serves one
queue, several queues in strict order, or every queue.

The statements of a path are sent together, with the commit. They check by themselves that nothing
unusual is to be done: no due job, no silent session, no settings that this process has not seen. If
there is, they take nothing, and the caller goes the long way.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import USUAL
from windlass.engine.contract import (
    Claim,
    NewJob,
    Outcome,
    Plan,
    Succeeded,
    batches,
    check_times,
)
from windlass.engine.postgres.pipeline import Reply
from windlass.engine.postgres.statements import PostgresStatements
from windlass.engine.postgres.transaction import SEEN_MS
from windlass.engine.postgres.verbs.claim import Look, to_claims
from windlass.engine.postgres.verbs.finish import success_values
from windlass.engine.postgres.verbs.put import Rows, shapes_jobs, values_of
from windlass.engine.sql.statements import Row
from windlass.engine.sql.transaction import unpack_paused, unpack_settings

#: From this number of dead rows on, claims skip those at the beginning of a line.
MANY_DEAD: Final = 20_000
#: How often a claim reads the whole line all the same, in seconds.
REREAD_S: Final = 1.0
#: Remember the beginning of at most this many lines.
_MOST_HEADS: Final = 1_000


def is_plain(jobs: Sequence[NewJob], queues: str) -> bool:
    """Whether jobs have no keys, and are in queues without settings that affect new jobs."""
    if any(job.idempotency_key is not None or job.unique is not None for job in jobs):
        return False
    settings = unpack_settings(queues)
    lines = {job.queue for job in jobs} if settings else ()
    return not any(shapes_jobs(settings.get(queue_of(line), USUAL)) for line in lines)


def put(db: PostgresStatements, clock: str, queues: str, jobs: Sequence[NewJob]) -> Rows:
    """Store plain jobs if the settings of queues are still these; the rows are the settings."""
    for job in jobs:
        if job.has_times:
            check_times(job)
    settings = db.later("put_jobs", clock, queues, *values_of(jobs))
    db.run("drop_repeated", [job.id for job in jobs])
    return settings


class Seen(NamedTuple):
    """What this process saw last: it decides whether the short way may be tried."""

    queues: str = ""  # the settings of queues
    line: str = ""  # the only line with ready jobs, if there was only one
    is_idle: bool = False  # the last claim has found nothing


def can_succeed(outcomes: Sequence[Outcome]) -> bool:
    """Whether outcomes are successes of different jobs that fit into one statement."""
    if not all(type(outcome) is Succeeded for outcome in outcomes):
        return False
    if len({outcome.id for outcome in outcomes}) < len(outcomes):
        return False
    return len(list(batches(outcomes, lambda outcome: outcome.size))) <= 1


def lines_for(plan: Plan, seen: Seen) -> tuple[str, ...] | None:
    """The lines from which a plan claims in turn; none at all stands for every line.
    None if the plan, or the settings of queues, need the long way."""
    if plan.labels or plan.tasks or plan.suspects or plan.shares or unpack_paused(seen.queues):
        return None
    settings = unpack_settings(seen.queues)
    if plan.queues:
        open_ones = [one for one in plan.queues if not settings.get(one, USUAL).paused]
        return tuple(dict.fromkeys(open_ones)) or None
    if any(own.cohort != USUAL.cohort for own in settings.values()):
        return None  # ages change the order among queues
    is_open = seen.line and not settings.get(seen.line, USUAL).paused
    return (seen.line,) if is_open else ()


def start_successes(db: PostgresStatements, clock: str, outcomes: Sequence[Outcome]) -> Reply:
    """End claims with success; the rows are the keys of those that were current."""
    ended = cast("Sequence[Succeeded]", outcomes)
    return db.start("succeed_jobs", *success_values(clock, ended))


class Asked(NamedTuple):
    """The claim of a turn."""

    session: str
    nonce: str
    plan: Plan
    limit: int
    lease_ms: int
    queues: str  # the settings of queues
    lines: tuple[str, ...]  # as `lines_for` returns them
    begin: Begin
    is_idle: bool  # first look whether there are jobs at all, without a lock

    @property
    def line(self) -> str:
        """The line, if there is only one."""
        return self.lines[0] if len(self.lines) == 1 else ""


class Begin(NamedTuple):
    """Where a claim begins in its line: a rank, and a place among the jobs of this rank."""

    rank: int = -(1 << 31)
    place: int = -(1 << 63)


class Head(NamedTuple):
    """Where the ready jobs of a line began when a claim last read the whole line."""

    begin: Begin
    until_s: float  # on the monotonic clock


class Heads:
    """Skips dead rows at the beginning of lines.

    Each claim leaves a dead row before the next ready jobs. The server removes it, but not while
    any transaction is open that began earlier. When there are many, a claim begins where the line
    began at most a second ago. Jobs of higher priority are found nevertheless. A job that returns
    to an earlier place, or whose transaction took long, is found a second later.
    """

    def __init__(self) -> None:
        self._heads: dict[str, Head] = {}

    def begin(self, line: str) -> Begin:
        head = self._heads.get(line)
        return head.begin if head and time.monotonic() < head.until_s else Begin()

    def note(self, asked: Asked, leased: Leased) -> None:
        """Remember where a line begins, after a claim that has read the whole line."""
        line = asked.line or leased.line
        if not line or asked.begin != Begin():
            return
        if leased.first is None or leased.dead_rows < MANY_DEAD:
            self._heads.pop(line, None)
            return
        if line not in self._heads and len(self._heads) >= _MOST_HEADS:
            self._heads.clear()
        self._heads[line] = Head(leased.first, time.monotonic() + REREAD_S)


class Leased(NamedTuple):
    """The reply to a turn: the keys of successes, the claims, and a look at the schema."""

    ended: list[Row]
    claims: tuple[Claim, ...]
    is_cut_short: bool
    look: Look
    dead_rows: int
    first: Begin | None  # the first job that was taken
    line: str  # the line of all ready jobs, if the claim saw only one
    now_ms: int


class StartedTurn(NamedTuple):
    """The statements of a turn that were sent."""

    ended: Reply | None
    claimed: Reply
    looked: Reply
    asked: Asked

    def read(self) -> Leased:
        rows = self.claimed.rows()
        ((*look, dead_rows, now_ms),) = self.looked.rows()
        taken = sorted((row[:-2] for row in rows), key=self._standing)
        return Leased(
            ended=[] if self.ended is None else self.ended.rows(),
            claims=to_claims(self.asked.nonce, taken),
            is_cut_short=bool(rows) and rows[0][-2] > len(rows),
            look=Look(*look),
            dead_rows=dead_rows,
            first=Begin(*taken[0][:2]) if taken else None,
            line=rows[0][4] if rows and rows[0][-1] == 1 else "",
            now_ms=now_ms,
        )

    def _standing(self, row: Row) -> tuple[int, int, int]:
        """The order of a job among the claimed ones: by queue first if the plan names any."""
        rank, place, _, _, line, *_ = row
        queues = self.asked.plan.queues
        return queues.index(line) if queues else 0, rank, place


def start_turn(
    db: PostgresStatements, clock: str, outcomes: Sequence[Outcome], asked: Asked
) -> StartedTurn:
    """End claims with success and claim jobs."""
    db.run("lock_session", asked.session)  # first, as a transaction that takes its jobs back does
    ended = start_successes(db, clock, outcomes) if outcomes else None
    claimed = _start_claim(db, clock, asked)
    looked = db.start("look_now", clock)
    db.run("note_seen", clock, SEEN_MS)
    return StartedTurn(ended, claimed, looked, asked)


def _start_claim(db: PostgresStatements, clock: str, asked: Asked) -> Reply:
    first = (clock, asked.queues, asked.session, asked.nonce)
    then = (asked.limit, asked.plan.most_bytes, asked.lease_ms, asked.lease_ms // 2)
    if asked.line:
        last = (not asked.plan.queues, *asked.begin)
        return db.start("claim_line", *first, asked.line, *then, *last)
    paused = [queue for queue, own in unpack_settings(asked.queues).items() if own.paused]
    return db.start("claim_lines", *first, list(asked.lines), *then, paused)
