"""The hot paths in one round trip: a put of plain jobs, and a turn of a worker that serves one
queue, several queues in strict order, or every queue.

The statements of a path are sent together, with the commit. They check by themselves that nothing
unusual is to be done: no due job, no silent session, no settings that this process has not seen. If
there is, they take nothing, and the caller goes the long way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
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
from windlass.engine.postgres.statements import PostgresStatements, pack_numbers
from windlass.engine.postgres.transaction import SEEN_MS
from windlass.engine.postgres.verbs.claim import BEHIND_ALL, Look, to_claims
from windlass.engine.postgres.verbs.finish import success_values
from windlass.engine.postgres.verbs.put import Rows, shapes_jobs, values_of
from windlass.engine.sql.statements import Row
from windlass.engine.sql.transaction import unpack_paused, unpack_settings

#: From this number of dead rows on, claims skip those at the beginning of a line.
MANY_DEAD: Final = 20_000
#: How often a claim reads the whole line all the same, in seconds; and how late, when a claim from
#: several lines reads one of them after the other.
REREAD_S: Final = 1.0
_LATEST_S: Final = 2.0
#: Remember the beginning of at most this many lines.
_MOST_HEADS: Final = 100


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
    begins: Mapping[str, Begin]
    wants_firsts: bool  # whether a claim from every line tells their first jobs

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
    read_at: float  # on the monotonic clock


class Heads:
    """Skips dead rows at the beginning of lines.

    Each claim leaves a dead row before the next ready jobs. The server removes it, but not while
    any transaction is open that began earlier. When there are many, a claim begins where the line
    began about a second ago. Jobs of higher priority are found nevertheless. A job that returns
    to an earlier place, or whose transaction took long, is found a second later.
    """

    def __init__(self) -> None:
        self._heads: dict[str, Head] = {}  # the line that was read longest ago first
        self.are_wanted = False  # there are many dead rows

    def begins(self, lines: Sequence[str]) -> dict[str, Begin]:
        """Return where a claim from these lines begins, or from every line if there are none. One
        line is read as a whole, if it is time."""
        now = time.monotonic()
        begins: dict[str, Begin] = {}
        is_one_read = False
        for line, head in list(self._heads.items()):  # other threads may note
            if lines and line not in lines:
                continue
            age_s = now - head.read_at
            if age_s < REREAD_S or (is_one_read and age_s < _LATEST_S):
                begins[line] = head.begin
            else:
                is_one_read = True
        return begins

    def note(self, asked: Asked, leased: Leased) -> None:
        """Remember where lines begin, after a claim that has read the whole of them."""
        self.are_wanted = leased.dead_rows >= MANY_DEAD
        if not self.are_wanted:
            self._heads.clear()
        elif leased.claims:
            firsts = leased.firsts(asked)
            for line in leased.lines_read(asked, list(self._heads)):
                old = self._heads.pop(line, None)
                begin = firsts.get(line) or (old and old.begin)  # an empty line begins as before
                if begin is not None and len(self._heads) < _MOST_HEADS:
                    self._heads[line] = Head(begin, time.monotonic())


class Leased(NamedTuple):
    """The reply to a turn: the keys of successes, the claims, and a look at the schema."""

    ended: list[Row]
    claims: tuple[Claim, ...]
    is_cut_short: bool
    look: Look
    dead_rows: int
    taken: list[Row]
    heads: dict[str, Begin]  # the first jobs of lines, if the claim was asked for them
    line: str  # the line of all ready jobs, if the claim saw only one
    now_ms: int

    def firsts(self, asked: Asked) -> dict[str, Begin]:
        """The first jobs of lines that have jobs."""
        firsts = dict(self.heads)
        if asked.lines:
            for rank, place, _, _, line, *_ in self.taken:
                firsts.setdefault(line, Begin(rank, place))
        return firsts

    def lines_read(self, asked: Asked, known: Sequence[str]) -> list[str]:
        """The lines that were read as a whole; of lines without jobs only known ones."""
        if not asked.lines:
            lines = [*self.heads, *known]
        else:  # in turn, until there were enough
            last = max(asked.lines.index(row[4]) for row in self.taken)
            lines = list(asked.lines[: last + 1])
        return [line for line in dict.fromkeys(lines) if line not in asked.begins]


class StartedTurn(NamedTuple):
    """The statements of a turn that were sent."""

    ended: Reply | None
    claimed: Reply
    looked: Reply
    asked: Asked

    def read(self) -> Leased:
        rows = self.claimed.rows()
        ((*look, dead_rows, now_ms),) = self.looked.rows()
        taken = sorted((row[:-5] for row in rows), key=self._standing)
        heads = [zip(*row[-3:], strict=True) for row in rows if row[-3] is not None]
        return Leased(
            ended=[] if self.ended is None else self.ended.rows(),
            claims=to_claims(self.asked.nonce, taken),
            is_cut_short=bool(rows) and rows[0][-5] > len(rows),
            look=Look(*look),
            dead_rows=dead_rows,
            taken=taken,
            heads={line: Begin(*begin) for some in heads for line, *begin in some},
            line=rows[0][4] if rows and rows[0][-4] == 1 else "",
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
        last = (not asked.plan.queues, *asked.begins.get(asked.line, Begin()))
        return db.start("claim_line", *first, asked.line, *then, *last)
    paused = [queue for queue, own in unpack_settings(asked.queues).items() if own.paused]
    known = sorted(asked.begins.items())
    return db.start(
        "claim_lines",
        *first,
        list(asked.lines),
        *then,
        paused,
        [line for line, _ in known],
        pack_numbers(begin.rank for _, begin in known),
        pack_numbers(begin.place for _, begin in known),
        BEHIND_ALL,
        asked.wants_firsts,
    )
