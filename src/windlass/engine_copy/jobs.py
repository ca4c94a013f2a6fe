"""Copy the jobs that the target does not have, page by page.

1. `WALKS` lists the walks of a pass: one for each state. Held jobs are copied first, because they
   were at the head of their line when a claim held them.
2. `JobPass` makes the walks, and counts the jobs of the source that are in the target.
3. Jobs are read and stored in batches of bounded size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from windlass.core.queues.labels import queue_of
from windlass.core.states import Hold, State
from windlass.engine.clock import read_clock
from windlass.engine.contract import (
    BATCH,
    BATCH_BYTES,
    CopyCode,
    Engine,
    Filter,
    JobCopy,
    JobRecord,
    LinePlace,
    batches,
)
from windlass.engine_copy.pages import read_pages
from windlass.engine_copy.target import TargetQueues

#: The target keeps a dead job for at least this long: the sides are compared first, and workers log
#: dead jobs before they remove them.
LEAST_KEEP_MS: Final = 24 * 60 * 60 * 1000
#: One page has at most this many jobs. Its end is where a killed copy continues.
PAGE: Final = BATCH
#: A read begins with this many jobs; their size decides about the next one.
_FIRST_READ: Final = 100


class JobWalk(NamedTuple):
    """The jobs of one state, in the order in which they are copied."""

    filter: Filter
    is_counted: bool = True  # False: another walk meets the same jobs again


WALKS: Final = (
    JobWalk(Filter(state=State.READY, hold=Hold.UNROUTABLE), is_counted=False),
    JobWalk(Filter(state=State.READY, hold=Hold.PAUSED), is_counted=False),
    *(
        JobWalk(Filter(state=state))
        for state in (State.READY, State.SCHEDULED, State.RETRYING, State.DEAD)
    ),
)
#: The states of jobs that are copied.
COPIED: Final = frozenset(walk.filter.state for walk in WALKS if walk.filter.state is not None)


class QueueState(NamedTuple):
    """The jobs of one queue in one state of the source."""

    queue: str
    state: State


class Position(NamedTuple):
    """The point from which a pass continues: the number of a walk, and the cursor of its next
    page."""

    walk: int = 0
    cursor: str | None = None


class JobPass:
    """Copies and counts all jobs of a source, or only those that were created in a span of time.

    `schedules` maps jobs to the schedules that watch them. Jobs in `refused` are not copied,
    because another job of the target has their idempotency key."""

    def __init__(
        self,
        source: Engine,
        target: Engine,
        queues: TargetQueues,
        schedules: Mapping[str, str],
        refused: AbstractSet[str],
    ) -> None:
        self._source = source
        self._target = target
        self._queues = queues
        self._schedules = schedules
        self._keep_until_ms = read_clock(target) + LEAST_KEEP_MS  # of dead jobs, at least
        self._at_once = _FIRST_READ  # how many jobs to read at once
        self.refused = set(refused)  # ids in the source
        self.seen: Counter[QueueState] = Counter()  # jobs of the source
        self.found: Counter[QueueState] = Counter()  # jobs of them that the target has
        self.stored = 0  # jobs that this pass has copied
        self.renamed = 0  # jobs that have another id in the target
        self.newest_ms = 0  # when the latest of these jobs was created

    def run(
        self, since_ms: int | None, until_ms: int | None, start: Position
    ) -> Iterator[Position]:
        """Make the walks from a position on; after each page yield the position behind the page."""
        for number in range(start.walk, len(WALKS)):
            walk = WALKS[number]
            filter = replace(walk.filter, since_ms=since_ms, until_ms=until_ms)
            find = partial(self._source.find, filter, limit=PAGE)
            for page in read_pages(find, start.cursor if number == start.walk else None):
                self._copy(page.records, is_counted=walk.is_counted)
                is_last = page.cursor is None
                yield Position(number + 1) if is_last else Position(number, page.cursor)

    # ---------------------------------------------------------------------------------- one page

    def _copy(self, records: Sequence[JobRecord], *, is_counted: bool) -> None:
        """Copy the jobs of a page that are missing, and count those that are there."""
        self._queues.prepare({queue_of(record.queue) for record in records})
        ids = {record.id: self.id_of(record) for record in records}
        there = self._target.ends(list(ids.values()))
        known = {id for id, end in zip(ids, there, strict=True) if end is not None}
        missing = [id for id in ids if id not in known and id not in self.refused]
        for copies in self._read(missing):
            waiting = [self._fit(copy) for copy in copies if copy.record.state in COPIED]
            for id, code in self._put(waiting):
                self.stored += code is CopyCode.STORED
                (self.refused if code is CopyCode.HELD else known).add(id)
        if is_counted:
            kinds = {
                record.id: QueueState(queue_of(record.queue), record.state) for record in records
            }
            self.seen.update(kinds.values())
            self.found.update(kinds[id] for id in known)
            self.renamed += sum(id != ids[id] for id in known)
            self.newest_ms = max([self.newest_ms, *(record.created_ms for record in records)])

    def id_of(self, record: JobRecord) -> str:
        """The id that a job has in the target."""
        schedule = self._schedules.get(record.id)
        return self._target.copied_id(record.id, record.task, record.unique_key, schedule)

    def put_holders(self, ids: Sequence[str]) -> None:
        """Copy ended jobs that hold a unique key. They are not counted, because they will not
        run."""
        for copies in self._read(ids):
            for _ in self._put([copy for copy in copies if copy.record.state.is_final]):
                pass

    def _read(self, ids: Sequence[str]) -> Iterator[list[JobCopy]]:
        """Read jobs as they are now."""
        at = 0
        while at < len(ids):
            some = ids[at : at + self._at_once]
            at += len(some)
            found = [copy for copy in self._source.read_copies(some) if copy is not None]
            mean_size = sum(copy.size for copy in found) // max(1, len(found))
            self._at_once = max(1, min(BATCH, BATCH_BYTES // max(1, mean_size)))
            yield found

    def _put(self, copies: Sequence[JobCopy]) -> Iterator[tuple[str, CopyCode]]:
        """Store copies; yield the id of each in the source, and what happened to it."""
        for some in batches(copies, lambda copy: copy.size):
            own = [
                replace(copy, record=replace(copy.record, id=self.id_of(copy.record)))
                for copy in some
            ]
            codes = self._target.put_copies(own)
            yield from zip((copy.record.id for copy in some), codes, strict=True)

    def _fit(self, copy: JobCopy) -> JobCopy:
        """Change what the target must not take over as it is: a dead job is not purged at once, and
        the queue of a job in line is at least as old as the job."""
        if copy.line is not None:
            self._make_room(copy.record.queue, copy.line)
        if copy.keep_until_ms is None or copy.record.state is not State.DEAD:
            return copy
        return replace(copy, keep_until_ms=max(copy.keep_until_ms, self._keep_until_ms))

    def _make_room(self, line: str, place: LinePlace) -> None:
        if place.queue_age > place.age:
            self._queues.make_room(queue_of(line), place.queue_age)
