"""Which jobs a claim leases: the next ones in line, within the limits of the plan.

1. `TaskFilter` passes over jobs of tasks that a worker cannot run.
2. `next_of_tiers` chooses from the queues of each tier, which share turns.
3. `lease` takes jobs, ends expired ones and holds those of paused tasks, in a bounded number.

Engines find the next jobs of a line. Their rows begin with rank, place, row, id, queue, expires_ms
and task; the last column is the size of the call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from windlass.core.queues.labels import queue_of
from windlass.core.queues.plans import allot
from windlass.engine.contract import BITE, Plan
from windlass.engine.sql.statements import Row
from windlass.engine.sql.transaction import SqlTransaction, unpack_paused
from windlass.engine.sql.verbs.upkeep import expire, hold_paused


class TaskFilter:
    """The tasks of a plan, and how many jobs of other tasks a claim may still pass over."""

    def __init__(self, plan: Plan) -> None:
        self._tasks = frozenset(plan.tasks)
        self._left = plan.most_passed_over

    @staticmethod
    def of_queues(plan: Plan) -> dict[str, TaskFilter]:
        """Make the filters of a claim: one for each queue of the plan, or one under the name "" if
        the plan names none. A plan without tasks has no filters."""
        queues = plan.queues or ("",)
        return {queue: TaskFilter(plan) for queue in queues} if plan.tasks else {}

    def accepts(self, row: Row) -> bool:
        """Return whether a candidate is a job of these tasks."""
        return row[6] in self._tasks

    def pass_over(self) -> bool:
        """Count a job of another task; return False if that is one too many."""
        self._left -= 1
        return self._left >= 0

    @property
    def left(self) -> int:
        """How many more jobs of other tasks a claim may pass over."""
        return self._left


#: How often a claim looks again after other transactions took the jobs that it had found.
_MOST_MISSED: Final = 10

#: Find the next jobs of a queue, at most a number, with the filter of the queue.
Front = Callable[[str, int, TaskFilter | None], list[Row]]


def next_of_tiers(
    plan: Plan,
    limit: int,
    filters: Mapping[str, TaskFilter],
    front_of: Front,
    taken: Sequence[Row] = (),
) -> list[Row]:
    """Choose the next jobs from the queues of a plan, tier by tier, after these were taken."""
    used = Counter(queue_of(row[4]) for row in taken)
    found: list[Row] = []
    seen: set[str] = set()
    for queues, turns in plan.tiers():
        left = limit - len(found)
        if not left:
            break
        named = [queue for queue in queues if queue not in seen]
        seen.update(named)
        turns = _without_used(turns, named, used) if used else turns
        fronts = [front_of(queue, left, filters.get(queue)) for queue in named]
        numbers = allot(turns, [len(front) for front in fronts], left)
        asked = Counter(turns[:left])
        # Jobs that fill turns come first: if bytes cut a batch short, no queue uses up the turns of
        # another.
        firsts = [min(asked[queue], number) for queue, number in enumerate(numbers)]
        for front, first_ones in zip(fronts, firsts, strict=True):
            found += front[:first_ones]
        for front, first_ones, number in zip(fronts, firsts, numbers, strict=True):
            found += front[first_ones:number]
    return found


def _without_used(turns: bytes, queues: Sequence[str], used: Counter[str]) -> bytes:
    """Leave out the turns that jobs have used: one for each job, the first turns of its queue."""
    left = [used[queue] for queue in queues]
    others = bytearray()
    for turn in turns:
        if left[turn]:
            left[turn] -= 1
        else:
            others.append(turn)
    return bytes(others)


#: Find the next jobs for a plan, at most a number. The last argument has the jobs that this claim
#: took before other transactions took some from it: their turns are used.
NextInLine = Callable[[int, Mapping[str, TaskFilter], Sequence[Row]], list[Row]]
#: Lease candidates; return a row for each that was leased.
Take = Callable[[Sequence[Row]], Sequence[Any]]


def lease(
    tx: SqlTransaction, plan: Plan, limit: int, next_in_line: NextInLine, take: Take
) -> tuple[list[Any], bool]:
    """Lease the next jobs in line, and end expired jobs, in a bounded number. Return what `take`
    returned, and whether a limit other than `limit` cut the batch short."""
    taken: list[Any] = []
    ended = missed = 0
    left_bytes = plan.most_bytes
    filters = TaskFilter.of_queues(plan)
    is_cut_short = is_done = False
    while len(taken) < limit and not is_done:
        found = next_in_line(limit - len(taken), filters, taken if missed else ())
        paused = _paused_ids(tx, found)
        number = len(found)
        if limit > 1:
            open_ones = [row for row in found if row[3] not in paused] if paused else found
            number, left_bytes = _fitting(tx, open_ones, left_bytes, at_least=0 if taken else 1)
        fresh: list[Row] = []
        is_done = True
        for row in found:
            expires_ms = row[5]
            is_late = expires_ms is not None and expires_ms <= tx.now_ms
            if not is_late and row[3] not in paused:
                if len(fresh) == number:
                    is_done = is_cut_short = True
                    break
                fresh.append(row)
            elif ended < BITE:
                expire(tx, row[3]) if is_late else hold_paused(tx, row[3])
                ended += 1
                is_done = False  # the next jobs move up
            else:
                is_done = is_cut_short = True
                break
        got = take(fresh)
        if len(got) < len(fresh):  # other transactions have taken some at this moment
            missed += 1
            is_done = is_cut_short = missed == _MOST_MISSED
        taken += got
    return taken, is_cut_short


def _paused_ids(tx: SqlTransaction, found: Sequence[Row]) -> frozenset[str]:
    """The jobs among these whose task is paused."""
    tasks = unpack_paused(tx.queues) if tx.queues else ()
    if not tasks:
        return frozenset()
    return frozenset(row[3] for row in found if row[6] in tasks)


def _fitting(
    tx: SqlTransaction, found: list[Row], left_bytes: int, *, at_least: int
) -> tuple[int, int]:
    """Count the jobs that fit into the byte budget; return the number and the remaining budget."""
    fresh = [row for row in found if row[5] is None or row[5] > tx.now_ms]
    for number, (*_, size) in enumerate(fresh):
        if size > left_bytes and number >= at_least:
            return number, left_bytes
        left_bytes -= size
    return len(fresh), left_bytes
