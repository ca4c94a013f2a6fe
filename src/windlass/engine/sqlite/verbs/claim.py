"""Claim jobs: promote due jobs, take back lost jobs, then lease the next ones in line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import apsw
import msgspec

from windlass.core.durations import LATEST_MS
from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import USUAL
from windlass.core.states import Counters, State
from windlass.engine.contract import Batch, Claim, Plan
from windlass.engine.sql.lease import TaskFilter, lease, next_of_tiers
from windlass.engine.sql.statements import Row
from windlass.engine.sql.transaction import unpack_settings
from windlass.engine.sql.verbs.upkeep import promote, reap
from windlass.engine.sql.wakeup import Found, ReadyLine
from windlass.engine.sqlite.line_index import Search
from windlass.engine.sqlite.lines import Lines
from windlass.engine.sqlite.statements import as_array, first, rows
from windlass.engine.sqlite.transaction import Transaction


class ClaimPreview:
    """A read-only view of the lines at one instant."""

    def __init__(
        self, connection: apsw.Connection, now_ms: int, reap_after_ms: int, queues: str
    ) -> None:
        self._connection = connection
        self._now_ms = now_ms
        self._reap_after_ms = reap_after_ms
        self._settings = unpack_settings(queues)

    @staticmethod
    def at(connection: apsw.Connection, now_ms: int) -> ClaimPreview:
        return ClaimPreview(connection, now_ms, *rows(connection, "reap_after")[0])

    @staticmethod
    def within(tx: Transaction) -> ClaimPreview:
        tx.refresh_lines()
        return ClaimPreview(tx.connection, tx.now_ms, tx.reap_after_ms, tx.queues)

    def has_work(self, plan: Plan) -> bool:
        """Return whether a claim would change anything."""
        return self.next_in_ms() == 0 or self.has_ready(plan)

    def has_ready(self, plan: Plan) -> bool:
        return self._has_some(plan, suspects=plan.suspects)

    def find(self, plans: Iterable[Plan]) -> Found:
        """Find the plans that have something to claim, and the time until the next due job."""
        return Found(frozenset(filter(self.has_ready, plans)), self.next_in_ms())

    def idle_batch(self, plan: Plan) -> Batch:
        """Make the reply to a claim of a live session when there is nothing to lease."""
        suspects = self._has_some(plan, suspects=True)
        return Batch(next_in_ms=self.next_in_ms(), suspects=suspects)

    def holds(self, session: str, nonce: str) -> bool:
        """Return whether a claim is a repeat: the session still holds jobs under its nonce."""
        return first(self._connection, "list_claims", session, nonce) is not None

    def next_in_ms(self) -> int | None:
        may_reap = self._now_ms >= self._reap_after_ms
        if may_reap and first(self._connection, "any_silent_session", self._now_ms):
            return 0
        due_ms: int | None = first(self._connection, "next_due")
        if due_ms is None or due_ms >= LATEST_MS:  # such a job is held until its task is resumed
            return None
        return max(0, due_ms - self._now_ms)

    def _has_some(self, plan: Plan, *, suspects: bool) -> bool:
        lines = Lines(self._connection, self._settings, plan)
        if not plan.tasks:
            return lines.have_some(suspects=suspects)
        search = Search(self._connection, self._settings, self._now_ms, suspects)
        filters = TaskFilter.of_queues(plan)
        if not plan.queues:
            groups = list(lines.groups(suspects=suspects))
            return bool(search.best_jobs(groups, 1, filters[""])[0])
        return any(
            search.best_jobs_of(lines.of_queue(queue, suspects=suspects), 1, tasks)
            for queue, tasks in filters.items()
        )


def is_gone(connection: apsw.Connection, session: str) -> bool:
    """Return whether a session was declared dead, perhaps a moment ago by its own claim."""
    return bool(first(connection, "find_session", session))


def claim(tx: Transaction, session: str, nonce: str, plan: Plan, limit: int) -> Batch:
    gone, last_nonce = tx.one("find_session", session) or (False, "")
    if gone:
        return Batch(gone=True)
    look = ClaimPreview.within(tx)
    if nonce > last_nonce:
        is_due = look.next_in_ms() == 0
        if is_due or look.has_ready(plan):
            return _claim_new(tx, session, nonce, plan, limit, is_due=is_due)
    held = _held(tx, session, nonce, plan)
    return msgspec.structs.replace(look.idle_batch(plan), claims=held)


def promote_and_reap(tx: Transaction) -> int | None:
    """Promote due jobs and take back lost jobs, in a bounded number; return the time until the next
    due job."""
    tx.note_seen()
    promote(tx)
    reap(tx)
    return ClaimPreview.within(tx).next_in_ms()


def _claim_new(
    tx: Transaction, session: str, nonce: str, plan: Plan, limit: int, *, is_due: bool
) -> Batch:
    tx.note_seen()
    if is_due:
        promote(tx)
        reap(tx)
        if is_gone(tx.connection, session):
            return Batch(gone=True)
    taken, is_cut_short = _lease(tx, session, nonce, plan, limit)
    held = _to_claims(tx, nonce, plan, taken)
    batch = ClaimPreview.within(tx).idle_batch(plan)
    next_in_ms = 0 if is_cut_short else batch.next_in_ms
    return msgspec.structs.replace(batch, claims=held, next_in_ms=next_in_ms)


def _lease(
    tx: Transaction, session: str, nonce: str, plan: Plan, limit: int
) -> tuple[list[Row], bool]:
    """Lease the next jobs in line; return their rows, and whether another limit cut them short."""
    taken, is_cut_short = lease(
        tx,
        plan,
        limit,
        lambda number, filters, _: _next_in_line(tx, plan, number, filters),
        lambda fresh: _take(tx, session, nonce, fresh, suspects=plan.suspects),
    )
    if taken:
        tx.run("note_claim", session, tx.now_ms + tx.options.lease_ms, nonce)
    return taken, is_cut_short


def _take(
    tx: Transaction, session: str, nonce: str, fresh: Sequence[Row], *, suspects: bool
) -> Sequence[Row]:
    tx.run("take_jobs", session, nonce, tx.now_ms, as_array([row[2] for row in fresh]))
    for queue, number in Counter([row[4] for row in fresh]).items():
        tx.count_move(queue, State.READY, State.RUNNING, number)
        tx.made_ready[ReadyLine(queue, suspects)] -= number
    return fresh


def _next_in_line(
    tx: Transaction, plan: Plan, limit: int, filters: Mapping[str, TaskFilter]
) -> list[Row]:
    settings = unpack_settings(tx.queues)
    served = Lines(tx.connection, settings, plan)
    if plan.queues:

        def front(queue: str, number: int, tasks: TaskFilter | None) -> list[Row]:
            lines = served.of_queue(queue, suspects=plan.suspects)
            return _merged(tx, lines, plan, number, tasks)

        return next_of_tiers(plan, limit, filters, front)
    tx.refresh_lines()
    search = Search(tx.connection, settings, tx.now_ms, plan.suspects)
    groups = list(served.groups(suspects=plan.suspects))
    found, empty = search.best_jobs(groups, limit, filters.get(""))
    tx.touched.update(empty)
    tx.totals["orphans"] += len(empty)
    return found


def _merged(
    tx: Transaction, lines: Sequence[str], plan: Plan, limit: int, tasks: TaskFilter | None
) -> list[Row]:
    """Merge the first jobs of several lines in the order of their start."""
    if tasks is not None:
        search = Search(tx.connection, unpack_settings(tx.queues), tx.now_ms, plan.suspects)
        return search.best_jobs_of(lines, limit, tasks)
    found = [row for line in lines for row in tx.rows("list_ready", line, plan.suspects, limit)]
    if len(lines) > 1:
        found.sort(key=lambda row: _standing(tx, row[4], row))
    return found[:limit]


def _standing(tx: Transaction, line: str, row: Row) -> tuple[int, int]:
    """Return the sort key of a job among all queues: rank, and place, which is unique."""
    rank, place, *_ = row
    settings = unpack_settings(tx.queues)
    if not settings:
        return rank, place
    return rank - settings.get(queue_of(line), USUAL).aged(tx.now_ms).age, place


def _held(tx: Transaction, session: str, nonce: str, plan: Plan) -> tuple[Claim, ...]:
    """List the claims under a nonce as leased: by queue first if the plan names queues."""
    return _to_claims(tx, nonce, plan, tx.rows("list_claims", session, nonce), is_new=False)


def _to_claims(
    tx: Transaction, nonce: str, plan: Plan, held: list[Row], *, is_new: bool = True
) -> tuple[Claim, ...]:
    """Make claims of rows of `list_ready`, read before the claim counted as an attempt (`is_new`),
    or of `list_claims`."""
    if tx.queues:
        held.sort(key=lambda row: _standing(tx, row[4], row))
    else:
        held.sort()  # by rank, then place, which is unique
    if plan.queues:
        precedence = {queue: -number for number, queue in enumerate(reversed(plan.queues))}
        held.sort(key=lambda row: precedence.get(queue_of(row[4]), 1))
    large = _large_calls(tx, held)
    claimed_ms = tx.now_ms if is_new else 0  # in `list_claims`, instants are relative to the claim
    claims = [
        Claim(
            id=job_id,
            token=nonce,
            task=task,
            queue=queue,
            priority=priority,
            payload=large.get(number, b"") if call is None else call,
            counters=Counters(attempt + is_new, starts + is_new, *counters),
            created_ms=created_ms,
            suspect=bool(suspect),
            waited_ms=claimed_ms - ready_ms if ready_ms < claimed_ms else 0,
        )
        for (_, _, number, job_id, queue, _, task, attempt, starts, *rest) in held
        for (*counters, created_ms, suspect, priority, call, ready_ms) in [rest[:10]]
    ]
    return tuple(claims)


def _large_calls(tx: Transaction, held: list[Row]) -> dict[int, bytes]:
    numbers = [row[2] for row in held if row[17] is None]
    return dict(tx.rows("list_payloads", as_array(numbers))) if numbers else {}
