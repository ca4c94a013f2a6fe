"""The hot paths in one round trip: a put of plain jobs, and a turn of a worker that serves one
queue, several queues in strict order, or every queue.

The statements of a path are sent together, with the commit. The server checks in them that nothing
else is to be done: no job is due, no session is silent, and this process knows the settings of all
queues. Otherwise they change nothing, and the caller takes the long way: a statement for each
question, and Python decides.
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
#: How often claims still read a whole line, in seconds. With more dead rows than the next number a
#: whole read takes longer, and its interval grows with them: so it slows few of the claims.
REREAD_S: Final = 1.0
_DEAD_PER_REREAD: Final = 50_000
#: How much later one line of several is read as a whole, at most: a claim reads only one of them.
_LATE_S: Final = 1.0
#: Remember the heads of at most this many lines.
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


class Assumptions(NamedTuple):
    """What this process saw last. It decides whether one round trip may do. The server checks the
    settings again."""

    queues: str = ""  # the settings of queues
    only_line: str = ""  # the line of all ready jobs, if there was only one
    is_idle: bool = False  # the last claim has found nothing


def are_plain_successes(outcomes: Sequence[Outcome]) -> bool:
    """Whether outcomes are successes of different jobs that fit into one statement."""
    if not all(type(outcome) is Succeeded for outcome in outcomes):
        return False
    if len({outcome.id for outcome in outcomes}) < len(outcomes):
        return False
    return len(list(batches(outcomes, lambda outcome: outcome.size))) <= 1


def lines_for(plan: Plan, assumed: Assumptions) -> tuple[str, ...] | None:
    """The lines from which a plan claims in turn; an empty tuple stands for every line. None if the
    plan, or the settings of queues, need the long way."""
    if plan.labels or plan.tasks or plan.suspects or plan.shares or unpack_paused(assumed.queues):
        return None
    settings = unpack_settings(assumed.queues)
    if plan.queues:
        open_ones = [one for one in plan.queues if not settings.get(one, USUAL).paused]
        return tuple(dict.fromkeys(open_ones)) or None
    if any(own.cohort != USUAL.cohort for own in settings.values()):
        return None  # ages change the order among queues
    line = assumed.only_line
    return (line,) if line and not settings.get(line, USUAL).paused else ()


def start_successes(db: PostgresStatements, clock: str, outcomes: Sequence[Outcome]) -> Reply:
    """End claims with success; the rows are the keys of those that were current."""
    ended = cast("Sequence[Succeeded]", outcomes)
    return db.start("succeed_jobs", *success_values(clock, ended))


class LinePosition(NamedTuple):
    """A position in a line: a rank, and a place among the jobs of this rank."""

    rank: int
    place: int


#: Before every job.
_START_OF_LINE: Final = LinePosition(rank=-(1 << 31), place=-(1 << 63))


class ShortClaim(NamedTuple):
    """A claim in one round trip."""

    session: str
    nonce: str
    plan: Plan
    limit: int
    lease_ms: int
    queues: str  # the settings of queues
    lines: tuple[str, ...]  # as `lines_for` returns them
    #: Where the claim starts in some lines. The claim reads the other lines as a whole.
    heads: Mapping[str, LinePosition]
    wants_heads: bool  # whether a claim from every line tells the first job of each
    is_idle: bool  # first look whether there are jobs at all, without a lock

    @property
    def only_line(self) -> str:
        return self.lines[0] if len(self.lines) == 1 else ""


class HeadOfLine(NamedTuple):
    """The first ready job of a line when a claim last read the whole line."""

    position: LinePosition
    read_at: float  # on the monotonic clock


class LineHeads:
    """Skips dead rows at the beginning of lines.

    Each claim leaves dead rows before the next ready jobs. The server removes them, but not while
    an older transaction is open. When there are many, a claim starts at the head that the line had
    about a second ago. The claim still finds jobs of higher priority. A job that returns to an
    earlier place, or whose transaction took long, is found a second later, or a few seconds if
    there are hundreds of thousands of dead rows.
    """

    def __init__(self) -> None:
        self._heads: dict[str, HeadOfLine] = {}  # the line that was read longest ago first
        self.are_wanted = False  # there are many dead rows
        self._dead_rows = 0

    def recall(self, lines: Sequence[str]) -> dict[str, LinePosition]:
        """Return where a claim from these lines starts, or from every line if there are none. One
        line whose head is old is left out, so that the claim reads the whole of it."""
        now, reread_s = time.monotonic(), self.reread_s
        heads: dict[str, LinePosition] = {}
        is_one_left_out = False
        for line, head in list(self._heads.items()):  # other threads may note
            if lines and line not in lines:
                continue
            age_s = now - head.read_at
            if age_s < reread_s or (is_one_left_out and age_s < reread_s + _LATE_S):
                heads[line] = head.position
            else:
                is_one_left_out = True
        return heads

    @property
    def reread_s(self) -> float:
        """How often to read a whole line."""
        return REREAD_S * max(1.0, self._dead_rows / _DEAD_PER_REREAD)

    def note(self, claim: ShortClaim, reply: TurnReply) -> None:
        """Remember the heads of the lines that a claim has read as a whole."""
        self._dead_rows = reply.dead_rows
        self.are_wanted = reply.dead_rows >= MANY_DEAD
        if not self.are_wanted:
            self._heads.clear()
        elif reply.claims:
            found = reply.find_heads(claim)
            for line in reply.find_lines_read(claim, list(self._heads)):
                old = self._heads.pop(line, None)
                position = found.get(line) or (old and old.position)  # an empty line keeps its head
                if position is not None and len(self._heads) < _MOST_HEADS:
                    self._heads[line] = HeadOfLine(position, time.monotonic())


class TurnReply(NamedTuple):
    """The reply to a turn: the keys of successes, the claims, and a look at the schema."""

    ended: list[Row]
    claims: tuple[Claim, ...]
    is_cut_short: bool  # the bytes of the jobs, and not their number, ended the claim
    look: Look
    dead_rows: int
    taken: list[Row]  # the claimed jobs, in the order of the claims
    heads: dict[str, LinePosition]  # only of a claim from every line, if it wants them
    only_line: str  # the line of all ready jobs, if the claim saw only one
    now_ms: int

    def find_heads(self, claim: ShortClaim) -> dict[str, LinePosition]:
        """Return the position of the first job of each line; none for lines without jobs."""
        heads = dict(self.heads)
        if claim.lines:
            for rank, place, _, _, line, *_ in self.taken:
                heads.setdefault(line, LinePosition(rank, place))
        return heads

    def find_lines_read(self, claim: ShortClaim, known: Sequence[str]) -> list[str]:
        """List the lines that the claim has read as a whole. A claim from every line does not tell
        which lines are empty: these are the other known ones."""
        if claim.lines:  # the claim goes from line to line until it has enough jobs
            last = max(claim.lines.index(line) for _, _, _, _, line, *_ in self.taken)
            lines = [*claim.lines[: last + 1]]
        else:
            lines = [*self.heads, *known]
        return [line for line in dict.fromkeys(lines) if line not in claim.heads]


class StartedTurn(NamedTuple):
    """The statements of a turn that were sent."""

    ended: Reply | None
    claimed: Reply
    looked: Reply
    claim: ShortClaim

    def read(self) -> TurnReply:
        rows = self.claimed.rows()  # a job each, then five columns about the whole claim
        found, number_of_lines = rows[0][-5:-3] if rows else (0, 0)
        heads = next((row[-3:] for row in rows if row[-3] is not None), ((), (), ()))
        taken = sorted((row[:-5] for row in rows), key=self._standing)
        ((*look, dead_rows, now_ms),) = self.looked.rows()
        return TurnReply(
            ended=[] if self.ended is None else self.ended.rows(),
            claims=to_claims(self.claim.nonce, taken),
            is_cut_short=found > len(rows),
            look=Look(*look),
            dead_rows=dead_rows,
            taken=taken,
            heads={line: LinePosition(*at) for line, *at in zip(*heads, strict=True)},
            only_line=rows[0][4] if number_of_lines == 1 else "",
            now_ms=now_ms,
        )

    def _standing(self, row: Row) -> tuple[int, int, int]:
        """The order of a job among the claimed ones: by queue first if the plan names any."""
        rank, place, _, _, line, *_ = row
        queues = self.claim.plan.queues
        return queues.index(line) if queues else 0, rank, place


def start_turn(
    db: PostgresStatements, clock: str, outcomes: Sequence[Outcome], claim: ShortClaim
) -> StartedTurn:
    """End claims with success and claim jobs."""
    db.run("lock_session", claim.session)  # first, as a transaction that takes its jobs back does
    ended = start_successes(db, clock, outcomes) if outcomes else None
    claimed = _start_claim(db, clock, claim)
    looked = db.start("look_now", clock)
    db.run("note_seen", clock, SEEN_MS)
    return StartedTurn(ended, claimed, looked, claim)


def _start_claim(db: PostgresStatements, clock: str, claim: ShortClaim) -> Reply:
    state = (clock, claim.queues, claim.session, claim.nonce)
    bounds = (claim.limit, claim.plan.most_bytes, claim.lease_ms, claim.lease_ms // 2)
    if line := claim.only_line:
        is_for_every_line = not claim.plan.queues
        start = claim.heads.get(line, _START_OF_LINE)
        return db.start("claim_line", *state, line, *bounds, is_for_every_line, *start)
    paused = [queue for queue, own in unpack_settings(claim.queues).items() if own.paused]
    heads = sorted(claim.heads.items())
    return db.start(
        "claim_lines",
        *state,
        list(claim.lines),
        *bounds,
        paused,
        [line for line, _ in heads],
        pack_numbers(head.rank for _, head in heads),
        pack_numbers(head.place for _, head in heads),
        BEHIND_ALL,
        claim.wants_heads,
    )
