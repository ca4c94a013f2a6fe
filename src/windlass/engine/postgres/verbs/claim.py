"""Claim jobs: promote due jobs, take back lost jobs, then lease the next ones in line.

Transactions claim side by side: a claim reads the next jobs in line, then takes those that no other
transaction has taken, and looks again if it got fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from windlass.core.durations import LATEST_MS
from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import USUAL, QueueSettings
from windlass.core.states import Counters, State
from windlass.engine.contract import Batch, Claim, Plan
from windlass.engine.postgres.statements import pack_numbers
from windlass.engine.postgres.transaction import Transaction
from windlass.engine.sql.lease import TaskFilter, lease, next_of_tiers
from windlass.engine.sql.statements import Row, Statements
from windlass.engine.sql.transaction import unpack_settings
from windlass.engine.sql.verbs.upkeep import promote, reap
from windlass.engine.sql.wakeup import Found, ReadyLine

#: A text that sorts after every name of a line.
BEHIND_ALL: Final = "\U0010ffff"
#: When to look again at what is due, while another transaction keeps it locked.
LOCKED_MS: Final = 50
#: With a filter of tasks, read this many jobs of a line first, and twice as many each time.
_CHUNK: Final = 32


class Look(NamedTuple):
    """What a claim has to know about the whole schema; the row of the statement `look`."""

    has_silent: bool
    due_ms: int | None
    has_suspects: bool

    def next_in_ms(self, now_ms: int, reap_after_ms: int) -> int | None:
        """Time until the next due job; 0 if there is something to promote or to take back."""
        if self.has_silent and now_ms >= reap_after_ms:
            return 0
        if self.due_ms is None or self.due_ms >= LATEST_MS:
            return None  # a job that is due then is held until its task is resumed
        return max(0, self.due_ms - now_ms)


class PlanLines:
    """The lines that a plan serves, and the next jobs of them."""

    def __init__(self, db: Statements, queues: str, now_ms: int, plan: Plan) -> None:
        self._db = db
        self._settings: Mapping[str, QueueSettings] = unpack_settings(queues)
        self._now_ms = now_ms
        self._plan = plan
        self._known: dict[str, list[str]] = {}
        self.missed: set[int] = set()  # rows that other transactions are taking at this moment

    def of_queue(self, queue: str) -> list[str]:
        """List the lines of a queue, or with "" of every queue, that have jobs for this worker."""
        if queue not in self._known:
            self._known[queue] = [line for line in self._read(queue) if self._serves(line)]
        return self._known[queue]

    def _read(self, queue: str) -> list[str]:
        if not queue:
            return [line for (line,) in self._db.rows("lines_with_jobs", "", BEHIND_ALL)]
        if not self._plan.labels:
            return [queue]
        labelled = self._db.rows("lines_with_jobs", f"{queue}+", f"{queue},")
        return [queue, *(line for (line,) in labelled)]

    def _serves(self, line: str) -> bool:
        settings = self._settings.get(queue_of(line), USUAL)
        return not settings.paused and self._plan.serves(line)

    def front(
        self, queue: str, limit: int, tasks: TaskFilter | None, *, suspects: bool
    ) -> list[Row]:
        """List the next jobs of a queue, or of every queue, in the order in which they start."""
        lines = self.of_queue(queue)
        if not lines:
            return []
        chunk = (limit if tasks is None else max(limit, _CHUNK)) + len(self.missed)
        while True:
            found = self._db.rows("list_candidates", self._db.array(lines), int(suspects), chunk)
            if self.missed:
                found = [row for row in found if row[2] not in self.missed]
            if len(lines) > 1 or self._settings:
                found.sort(key=self.standing)
            if tasks is None:
                return found[:limit]
            chosen, is_over = _filtered(found, limit, tasks)
            if is_over or len(chosen) == limit or not _is_full(found, chunk - len(self.missed)):
                return chosen
            chunk *= 2

    def standing(self, row: Row) -> tuple[int, int]:
        """The sort key of a job among all queues: rank, and place, which is unique."""
        rank, place, _, _, line, *_ = row
        if not self._settings:
            return rank, place
        return rank - self._settings.get(queue_of(line), USUAL).aged(self._now_ms).age, place


def _filtered(found: Sequence[Row], limit: int, tasks: TaskFilter) -> tuple[list[Row], bool]:
    """Pass over jobs of other tasks; return the others, and whether too many were passed over."""
    chosen: list[Row] = []
    passed = 0
    for row in found:
        if len(chosen) == limit:
            break
        if tasks.accepts(row):
            chosen.append(row)
        else:
            passed += 1
            if passed > tasks.left:
                return chosen, True
    return chosen, False


def _is_full(found: Sequence[Row], chunk: int) -> bool:
    """Whether a line may have more jobs than were read."""
    numbers: dict[str, int] = {}
    for row in found:
        numbers[row[4]] = numbers.get(row[4], 0) + 1
    return any(number >= chunk for number in numbers.values())


# ------------------------------------------------------------------------------------- previews


class Preview:
    """A look at the lines at one instant, which changes nothing."""

    def __init__(self, db: Statements, now_ms: int, reap_after_ms: int, queues: str) -> None:
        self._db = db
        self._now_ms = now_ms
        self._queues = queues
        self._look = Look(*db.rows("look", now_ms)[0])
        self.next_in_ms = self._look.next_in_ms(now_ms, reap_after_ms)

    def has_ready(self, plan: Plan, *, suspects: bool | None = None) -> bool:
        """Whether jobs that a plan allows are ready."""
        suspects = plan.suspects if suspects is None else suspects
        if suspects and not self._look.has_suspects:
            return False
        lines = PlanLines(self._db, self._queues, self._now_ms, plan)
        filters = TaskFilter.of_queues(plan)
        return any(
            lines.front(queue, 1, filters.get(queue), suspects=suspects)
            for queue in plan.queues or ("",)
        )

    def find(self, plans: Iterable[Plan]) -> Found:
        return Found(frozenset(filter(self.has_ready, plans)), self.next_in_ms)

    def idle_batch(self, plan: Plan) -> Batch:
        """The reply to a claim of a live session when there is nothing to lease."""
        suspects = self._look.has_suspects and self.has_ready(plan, suspects=True)
        return Batch(next_in_ms=self.next_in_ms, suspects=suspects)


def preview(tx: Transaction) -> Preview:
    return Preview(tx, tx.now_ms, tx.reap_after_ms, tx.queues)


def idle(db: Statements, session: str, nonce: str, plan: Plan, look: Preview) -> Batch | None:
    """Reply to a claim that has nothing to do; None if there is work."""
    if look.next_in_ms == 0 or look.has_ready(plan):
        return None
    if db.rows("list_claims", session, nonce):
        return None
    gone = db.first("find_session", session)
    return Batch(gone=True) if gone else look.idle_batch(plan)


# ------------------------------------------------------------------------------------------ claims


def claim(tx: Transaction, session: str, nonce: str, plan: Plan, limit: int) -> Batch:
    gone, last_nonce = tx.one("lock_session", session) or (0, "")
    if gone:
        return Batch(gone=True)
    look = preview(tx)
    if nonce > last_nonce and (look.next_in_ms == 0 or look.has_ready(plan)):
        return _claim_new(tx, session, nonce, plan, limit, is_due=look.next_in_ms == 0)
    held = _in_order(tx, nonce, plan, tx.rows("list_claims", session, nonce))
    return msgspec.structs.replace(look.idle_batch(plan), claims=held)


def promote_and_reap(tx: Transaction) -> int | None:
    """Promote due jobs and take back lost jobs, in a bounded number; return the time until the next
    due job."""
    tx.note_seen()
    is_stuck = not _advance(tx)
    return _delay_if_stuck(is_stuck, preview(tx).next_in_ms)


def _advance(tx: Transaction) -> bool:
    """Promote due jobs and take back lost jobs; return whether there were any that no other
    transaction has locked."""
    before = tx.made_ready.copy(), tx.counts.copy(), tx.totals.copy()
    promote(tx)
    reap(tx)
    return before != (tx.made_ready, tx.counts, tx.totals)


def _delay_if_stuck(is_stuck: bool, next_in_ms: int | None) -> int | None:
    """Delay the next look if due jobs are locked, perhaps for long: a transaction of a caller locks
    the job that holds a unique key."""
    return LOCKED_MS if is_stuck and next_in_ms == 0 else next_in_ms


def _claim_new(
    tx: Transaction, session: str, nonce: str, plan: Plan, limit: int, *, is_due: bool
) -> Batch:
    tx.note_seen()
    is_stuck = is_due and not _advance(tx)
    if is_due and tx.first("lock_session", session):
        return Batch(gone=True)
    taken, is_cut_short = _lease(tx, session, nonce, plan, limit)
    batch = preview(tx).idle_batch(plan)
    next_in_ms = 0 if is_cut_short else _delay_if_stuck(is_stuck, batch.next_in_ms)
    held = _in_order(tx, nonce, plan, taken)
    return msgspec.structs.replace(batch, claims=held, next_in_ms=next_in_ms)


def _lease(
    tx: Transaction, session: str, nonce: str, plan: Plan, limit: int
) -> tuple[list[Row], bool]:
    lines = PlanLines(tx, tx.queues, tx.now_ms, plan)

    def next_in_line(
        number: int, filters: Mapping[str, TaskFilter], before: Sequence[Row]
    ) -> list[Row]:
        def front(queue: str, most: int, tasks: TaskFilter | None) -> list[Row]:
            return lines.front(queue, most, tasks, suspects=plan.suspects)

        if not plan.queues:
            return front("", number, filters.get(""))
        return next_of_tiers(plan, number, filters, front, before)

    may_take: bool | None = None

    def take(fresh: Sequence[Row]) -> Sequence[Row]:
        nonlocal may_take
        if may_take is None and fresh:
            may_take = _may_take(tx, session, nonce)
        if not may_take:
            return ()
        taken = _take(tx, session, nonce, fresh, suspects=plan.suspects)
        lines.missed.update({row[2] for row in fresh}.difference(row[2] for row in taken))
        return taken

    taken, is_cut_short = lease(tx, plan, limit, next_in_line, take)
    if may_take is False:  # the same claim came through another connection at this moment
        return tx.rows("list_claims", session, nonce), True
    if taken:
        tx.run("note_claim", session, tx.now_ms + tx.options.lease_ms, nonce)
    return taken, is_cut_short


def _may_take(tx: Transaction, session: str, nonce: str) -> bool:
    """Lock a session that may be new; return whether it may lease jobs under a nonce."""
    tx.run("begin_session", session, tx.now_ms + tx.options.lease_ms)
    gone, last_nonce = tx.rows("lock_session", session)[0]
    return not gone and nonce > last_nonce


def _take(
    tx: Transaction, session: str, nonce: str, fresh: Sequence[Row], *, suspects: bool
) -> Sequence[Row]:
    if not fresh:
        return ()
    taken = tx.rows("take_jobs", session, nonce, tx.now_ms, pack_numbers(row[2] for row in fresh))
    for line in {row[4] for row in taken}:
        number = sum(row[4] == line for row in taken)
        tx.count_move(line, State.READY, State.RUNNING, number)
        tx.made_ready[ReadyLine(line, suspects)] -= number
    return taken


def _in_order(tx: Transaction, nonce: str, plan: Plan, held: list[Row]) -> tuple[Claim, ...]:
    """Make claims of rows, by queue first if the plan names any."""
    lines = PlanLines(tx, tx.queues, tx.now_ms, plan)
    held = sorted(held, key=lines.standing)
    if plan.queues:
        precedence = {queue: -number for number, queue in enumerate(reversed(plan.queues))}
        held.sort(key=lambda row: precedence.get(queue_of(row[4]), 1))
    return to_claims(nonce, held)


def to_claims(nonce: str, held: Iterable[Row]) -> tuple[Claim, ...]:
    """Make claims of rows of `take_jobs`, `claim_line` or `list_claims`."""
    return tuple(
        Claim(
            id=job_id,
            token=nonce,
            task=task,
            queue=queue,
            priority=priority,
            payload=call,
            counters=Counters(*counters),
            created_ms=created_ms,
            suspect=bool(suspect),
            waited_ms=max(0, -ready_ms),
        )
        for _, _, _, job_id, queue, task, *rest in held
        for *counters, created_ms, suspect, priority, call, ready_ms in [rest]
    )
