"""Copy all jobs that are still to run from one engine to another, and continue after a kill.

1. `naming`: list the queues and schedules that are paused on either side. They stay paused at the
   end.
2. `copying`: pause all queues and schedules of the source, and the queues of the target. When no
   job of the source runs any more, a first pass copies all jobs. A second pass compares both sides
   and copies what is missing. It reads only jobs that were created before it began, so that
   producers cannot delay the end of the copy.
3. `opening`: put the schedules into the target, and resume its queues. From here on no job is
   copied: the target may have run the job already, and purged its record.
4. `done`: another run copies only jobs that were created later.

The phase and the position of the first pass are stored in the source after each page. A copy that
is killed repeats at most one page, which changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

import msgspec

from windlass.core.queues.labels import queue_of
from windlass.core.states import State
from windlass.engine.clock import read_clock
from windlass.engine.contract import Engine, Stats
from windlass.engine_copy.documents import (
    SOURCE_QUEUES,
    SOURCE_SCHEDULES,
    TARGET_QUEUES,
    CopyState,
    Mark,
    Phase,
    StoredState,
    read_names,
    write_mark,
    write_names,
)
from windlass.engine_copy.jobs import COPIED, JobPass, Position, QueueState
from windlass.engine_copy.keys import KeyPass, holders
from windlass.engine_copy.source import (
    all_queues,
    count_running,
    pause_queues,
    pause_schedules,
    paused_queues,
    paused_schedules,
    refuse_workers,
    resume_queues,
    silence_workers,
)
from windlass.engine_copy.start import begin
from windlass.engine_copy.target import (
    TargetQueues,
    count_schedules,
    move_schedules,
    put_schedules,
    watched_jobs,
)

#: End a run after this many passes: something else keeps changing the source.
MOST_PASSES: Final = 6


class CopyStep(NamedTuple):
    """The progress of a copy."""

    doing: str
    done: int = 0
    total: int | None = None
    is_waiting: bool = False  # nothing can be done now: look again a little later


class ComparedKind(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one queue in one state."""

    queue: str
    state: State  # in the source
    source: int
    target: int  # jobs of the source that the target has


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What both sides have at the end of a run."""

    source: str
    target: str
    is_complete: bool  # all is copied, and the target is open
    is_late: bool  # only jobs were copied that were created after an earlier, complete copy
    copied: int  # jobs that this run has stored
    newer: int  # jobs that were enqueued into the source meanwhile, for another run
    renamed: int  # jobs that have another id in the target
    jobs: tuple[ComparedKind, ...]  # empty if an earlier run has compared them
    refused: tuple[str, ...]  # jobs whose key another job of the target has
    keys: int  # idempotency keys
    schedules: int  # those of the source that the target has


class Copier:
    """One run of a copy, from its beginning or from where an earlier run was ended."""

    def __init__(self, source: Engine, target: Engine, *, drains: bool = False) -> None:
        self._source = source
        self._target = target
        self._drains = drains
        self._queues = TargetQueues(source, target)
        self._copied = 0  # by earlier passes
        self._total = 0  # about how many jobs a pass sees
        self._jobs: JobPass | None = None  # the last pass
        self._keys: KeyPass | None = None
        self._numbers: Counter[QueueState] = Counter()  # the jobs of the source after it
        self._newer = 0
        self._is_late = False
        self._is_complete = False

    def run(self) -> Iterator[CopyStep]:
        """Copy all jobs. Raises `CopyRefused`, before any change, if this copy is not allowed."""
        stored = begin(self._source, self._target, drains=self._drains)
        self._is_late = stored.state.is_late
        if stored.state.phase is Phase.NAMING:
            self._list_names(stored)
        if stored.state.phase is Phase.COPYING:
            yield from self._copy(stored)
        if stored.state.phase is Phase.OPENING:
            yield CopyStep("opening the target")
            self._open(stored)

    def report(self) -> CopyReport:
        """Return the numbers of both sides, as the last pass has found them."""
        jobs, keys = self._jobs, self._keys
        return CopyReport(
            source=self._source.location,
            target=self._target.location,
            is_complete=self._is_complete,
            is_late=self._is_late,
            copied=self._copied + (0 if jobs is None else jobs.stored),
            renamed=0 if jobs is None else jobs.renamed,
            jobs=tuple(self._compared()),
            refused=() if jobs is None else tuple(sorted(jobs.refused)),
            newer=self._newer,
            keys=0 if keys is None else keys.seen,
            schedules=count_schedules(self._source, self._target),
        )

    def _compared(self) -> Iterator[ComparedKind]:
        found: Counter[QueueState] = Counter() if self._jobs is None else self._jobs.found
        for kind in sorted({*self._numbers, *found}):
            yield ComparedKind(
                queue=kind.queue, state=kind.state, source=self._numbers[kind], target=found[kind]
            )

    # -------------------------------------------------------------------------------- copying

    def _list_names(self, stored: StoredState) -> None:
        """Store what is paused on either side. A copy of late jobs does not list the source: the
        earlier copy has listed and paused all of it."""
        if not self._is_late:
            write_names(self._source, SOURCE_QUEUES, paused_queues(self._source))
            write_names(self._source, SOURCE_SCHEDULES, paused_schedules(self._source))
        write_names(self._source, TARGET_QUEUES, paused_queues(self._target))
        stored.save(phase=Phase.COPYING, target=self._target.location)

    def _copy(self, stored: StoredState) -> Iterator[CopyStep]:
        for _ in range(MOST_PASSES):
            self._pause()
            yield from _settle(self._source, self._target)  # claims that began before the pause
            counted = _count_jobs((yield from self._drain()))
            if not stored.state.is_walked:
                yield from self._walk(stored)
                continue
            until_ms = yield from self._await_bound(stored.state)
            yield from _settle(self._source)  # jobs that were created before the bound
            jobs = yield from self._start_pass("comparing", stored.state)
            for _ in jobs.run(stored.state.since_ms, until_ms, Position()):
                yield self._step("comparing", jobs)
            self._numbers = jobs.seen if self._is_late else counted | jobs.seen
            missed = counted.total() - stored.state.left - jobs.seen.total()
            if self._are_equal() and missed <= 0:
                left = stored.state.left + jobs.found.total()
                stored.save(phase=Phase.OPENING, since_ms=until_ms, left=left)
                return
            if jobs.refused:
                return  # another pass would find the same

    def _await_bound(self, state: CopyState) -> Generator[CopyStep, None, int]:
        """Return an instant after the creation of all jobs that were counted. Jobs that are created
        later are left to another run: no pass could tell whether it has seen all of them."""
        counted_ms = read_clock(self._source)
        while (now_ms := read_clock(self._source)) <= counted_ms:
            yield CopyStep("comparing keys", is_waiting=True)
        return max(now_ms, state.newest_ms + 1)  # the clock may have been set back

    def _walk(self, stored: StoredState) -> Iterator[CopyStep]:
        """Make the first pass, from the position of an earlier run; store the position after each
        page."""
        jobs = yield from self._start_pass("copying", stored.state)
        start = Position(stored.state.walk, stored.state.cursor)
        for position in jobs.run(stored.state.since_ms, None, start):
            newest_ms = max(stored.state.newest_ms, jobs.newest_ms)
            stored.save(walk=position.walk, cursor=position.cursor, newest_ms=newest_ms)
            yield self._step("copying", jobs)
        stored.save(is_walked=True, walk=0, cursor=None)

    def _start_pass(self, doing: str, state: CopyState) -> Generator[CopyStep, None, JobPass]:
        """Copy the keys that the target lacks, and prepare a walk over the jobs."""
        source, target = self._source, self._target
        self._keys = KeyPass(source, target, state.since_ms)
        for seen in self._keys.run():
            yield CopyStep(f"{doing} keys", seen)
        jobs = JobPass(source, target, self._queues, watched_jobs(source), self._keys.refused)
        if not self._is_late:
            for ids in holders(source):
                jobs.put_holders(ids)
        self._copied += 0 if self._jobs is None else self._jobs.stored
        self._jobs = jobs
        self._total = _count_jobs(source.stats()).total() - state.left
        return jobs

    def _step(self, doing: str, jobs: JobPass) -> CopyStep:
        return CopyStep(f"{doing} jobs", jobs.seen.total(), self._total)

    def _are_equal(self) -> bool:
        return all(one.source == one.target for one in self._compared())

    def _pause(self) -> None:
        """Pause all queues and schedules of the source, and the queues of the target. A copy of
        late jobs pauses only the queues of these jobs in the target."""
        queues = all_queues(self._source)
        if self._is_late:
            pause_queues(self._source, queues)
        else:
            self._queues.prepare(queues)
            self._queues.pause_tasks()
            pause_schedules(self._source)

    def _drain(self) -> Generator[CopyStep, None, Stats]:
        """Wait until no job of the source runs; return the numbers of that instant. `tend` takes
        back jobs of dead workers."""
        while running := count_running(stats := self._source.stats()):
            if self._drains:
                silence_workers(self._source)
            else:
                refuse_workers(self._source)
            self._source.tend(known=())
            yield CopyStep("waiting for running jobs", running, is_waiting=True)
        return stats

    # -------------------------------------------------------------------------------- opening

    def _open(self, stored: StoredState) -> None:
        """Let the target run what was copied."""
        source, target = self._source, self._target
        if self._is_late:
            move_schedules(source, target)
        else:
            put_schedules(source, target, read_names(source, SOURCE_SCHEDULES))
        kept = read_names(source, SOURCE_QUEUES) | read_names(source, TARGET_QUEUES)
        resume_queues(target, paused_queues(source) - kept)
        write_mark(target, stored.state.id, Mark(source=source.location, is_done=True))
        stored.save(phase=Phase.DONE)
        self._newer = max(0, _count_jobs(source.stats()).total() - stored.state.left)
        self._is_complete = True


def _settle(*engines: Engine) -> Iterator[CopyStep]:
    """Wait for the end of all transactions that are open now."""
    for engine in engines:
        begun = engine.open_transactions()
        while begun := begun & engine.open_transactions():
            yield CopyStep("waiting for open transactions", len(begun), is_waiting=True)


def _count_jobs(stats: Stats) -> Counter[QueueState]:
    """Count the jobs that are copied, by queue and state."""
    numbers: Counter[QueueState] = Counter()
    for line, states in stats.queues.items():
        for state in COPIED & states.keys():
            numbers[QueueState(queue_of(line), state)] += states[state]
    return +numbers
