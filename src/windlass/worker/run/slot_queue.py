"""The queue between the fetcher and the runners: waiting claims, and slots with running jobs.

The fetcher appends claims. A runner takes a claim only when it starts the job. So the fetcher can
take back waiting claims: after too long a wait, when the worker stops, when the session is gone.
Threads and the event loop are two kinds of runner that share one number of slots.

While more claims wait than there are slots, the jobs are so short that one thread is as fast as ten
threads that compete for the interpreter. So only one thread is woken then. When no job has ended
for a moment, `press` wakes the other threads.

`Lease` decides whether a claim may still start, `Prefetch` how many claims may wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from threading import Lock
from time import monotonic
from typing import Any

import msgspec

from windlass.engine.contract import Claim
from windlass.task import Task
from windlass.worker.ipc.shared_memory import SlotTable

#: The share of a lease after which the child no longer relies on it.
RELIABLE = 0.8
#: The number of latest jobs to measure. With fewer jobs there is no prefetch.
SAMPLE = 50
#: The child prefetches only if their mean run time is below this, in seconds.
SHORT_S = 0.005
#: A job that takes longer than this, in seconds, ends the prefetch.
SLOW_S = 0.025
#: How much work to prefetch, in seconds.
WORK_S = 0.075
#: The most jobs to prefetch.
MAX_LOOK_AHEAD = 900


class JobKind(IntEnum):
    """The kind of runner that runs a task."""

    THREAD = 0
    LOOP = 1


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """A claim that has not started."""

    claim: Claim
    task: Task[..., Any]
    order: int
    since: float


class Started(msgspec.Struct, frozen=True, gc=False):
    """A claim that occupies a slot."""

    slot: int
    claim: Claim
    task: Task[..., Any]
    since: float
    owner: int  # the thread that runs the job; 0 for the event loop
    queued_at: float  # when the claim was queued, by the monotonic clock


class Lease:
    """The lease of a child's session: decides whether the child may still start jobs.

    Heartbeats of the supervisor and claims keep a session alive. When neither was confirmed for
    most of a lease (this machine slept, the engine is away, a signal stopped the processes), the
    claimed jobs may have been reassigned: then the child starts no job. A solo child that the
    supervisor is about to end starts no job either.

    Times are of the monotonic clock, which all processes of a machine share."""

    def __init__(self, table: SlotTable, lease_ms: int, *, is_solo: bool = False) -> None:
        self.table = table
        self._is_watched = is_solo  # the supervisor ends other children only after a message
        self._reliable_s = lease_ms / 1000 * RELIABLE
        self._claimed_at = 0.0

    def confirm(self, sent_at: float) -> None:
        """Note that the engine granted a claim that was sent at this moment."""
        self._claimed_at = sent_at

    def is_held(self, now: float) -> bool:
        if self._is_watched and self.table.is_shut():
            return False  # the supervisor is about to end this process
        if now - self._claimed_at < self._reliable_s:
            return True
        return now - self.table.confirmed_beat() < self._reliable_s


class Prefetch:
    """The number of claims to hold beyond the running jobs, by the run times of the latest jobs.

    No other worker can run a claimed job. So a child prefetches nothing, unless its latest jobs
    were so short that a round trip to the engine costs more than a job, and no job was slow. Then
    the child holds a fraction of a second of work, and releases claims that do not start soon. Jobs
    that seem a little longer, because their thread waited for a processor, do not end the
    prefetch."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=SAMPLE)
        #: Called after every job, so a bare append for speed.
        self.record = self._latest.append

    def look_ahead(self, slots: int, longest_running_s: float) -> int:
        latest = list(self._latest)
        if len(latest) < SAMPLE or max(longest_running_s, *latest) > SLOW_S:
            return 0
        mean = max(sum(latest) / len(latest), 1e-6)
        return min(MAX_LOOK_AHEAD, int(WORK_S * slots / mean)) if mean < SHORT_S else 0


class SlotQueue:
    """Claims waiting for slots, and jobs running in slots. Thread-safe."""

    def __init__(self, lease: Lease) -> None:
        slots = self.slots = lease.table.slots
        self.ended = 0  # jobs that have freed their slot
        self.lease = lease
        self.prefetch = Prefetch()
        self._lock = Lock()
        self._waiting: tuple[deque[Waiting], deque[Waiting]] = (deque(), deque())
        self._free = list(range(slots - 1, -1, -1))
        self._started: list[Started | None] = [None] * slots
        self._at_work = [0, 0]  # slots in use, by kind of runner
        self.offered = 0  # claims that were queued
        self._hints: list[Callable[[int], None]] = [_ignore, _ignore]

    def serve(self, kind: JobKind, hint: Callable[[int], None]) -> None:
        """Register a runner: `hint(count)` is called when `count` of its claims may start."""
        self._hints[kind] = hint

    # ---------------------------------------------------------------------------- the fetcher

    def offer(self, claims: Sequence[tuple[Claim, Task[..., Any]]]) -> None:
        """Append claims in this order."""
        now = monotonic()
        with self._lock:
            for claim, task in claims:
                kind = JobKind.LOOP if task.is_async else JobKind.THREAD
                waiting = Waiting(claim, task, self.offered, now)
                # In this order no exception sent to this thread comes between the two lines.
                self.offered += 1
                self._waiting[kind].append(waiting)
            counts = self._startable()
        self._hint(counts)

    def take_back(self, since: float) -> list[Claim]:
        """Remove and return claims that were queued at `since` or earlier."""
        taken = []
        with self._lock:
            for waiting in self._waiting:
                while waiting and waiting[0].since <= since:
                    taken.append(waiting.popleft().claim)
            counts = self._startable() if taken else (0, 0)
        # A removed claim may have blocked a claim that can start now.
        self._hint(counts)
        return taken

    def take_out(self, ids: Collection[str]) -> list[Claim]:
        """Remove and return waiting claims of these jobs."""
        taken: list[Claim] = []
        with self._lock:
            for kind, waiting in enumerate(self._waiting):
                kept = [entry for entry in waiting if entry.claim.id not in ids]
                taken += (entry.claim for entry in waiting if entry.claim.id in ids)
                self._waiting[kind].clear()
                self._waiting[kind].extend(kept)
            counts = self._startable() if taken else (0, 0)
        self._hint(counts)
        return taken

    def press(self) -> None:
        """Wake runners for all free slots, not only one thread."""
        with self._lock:
            counts = self._startable(spare=False)
        self._hint(counts)

    def has_plenty(self) -> bool:
        """Return whether more claims wait than there are slots."""
        return len(self._waiting[JobKind.THREAD]) > self.slots

    def is_sparing(self) -> bool:
        """Return whether slots are free although claims wait."""
        return bool(self._free) and bool(self._waiting[JobKind.THREAD])

    def room(self, *, is_ahead: bool) -> int:
        """Return how many more claims the child may hold, with prefetch if `is_ahead`."""
        room = self.slots - self.in_hand()
        if is_ahead:
            room += self.prefetch.look_ahead(self.slots, self.longest_running_s())
        return room

    def in_hand(self) -> int:
        with self._lock:
            return self.busy() + len(self._waiting[0]) + len(self._waiting[1])

    def waiting_since(self) -> float | None:
        """Return when the oldest waiting claim was queued."""
        with self._lock:
            return min((waiting[0].since for waiting in self._waiting if waiting), default=None)

    def busy(self) -> int:
        """Return the number of slots in use."""
        return self.slots - len(self._free)

    def running(self) -> list[Claim]:
        return [started.claim for started in self._started if started is not None]

    def started(self) -> list[Started]:
        return [started for started in self._started if started is not None]

    def longest_running_s(self) -> float:
        now = monotonic()
        return max((now - started.since for started in self._started if started), default=0.0)

    # ---------------------------------------------------------------------------- the runners

    def begin(self, kind: JobKind, owner: int = 0) -> Started | None:
        """Start the next claim of this kind, if a slot is free."""
        with self._lock:
            started = self._begin(kind, monotonic(), owner)
            others = 0 if started else self._others(kind)
        if others:
            self._hints[1 - kind](others)
        return started

    def follow(self, kind: JobKind, ended: Started, now: float) -> Started | None:
        """Free the slot of a job, and start the next claim of this kind."""
        with self._lock:
            self.ended += 1
            self._started[ended.slot] = None
            self._free.append(ended.slot)
            self._at_work[kind] -= 1
            started = self._begin(kind, now, ended.owner)
            others = 0 if started else self._others(kind)
        if others:
            self._hints[1 - kind](others)
        return started

    def _begin(self, kind: JobKind, now: float, owner: int) -> Started | None:
        own, other = self._waiting[kind], self._waiting[1 - kind]
        if not own or not self._free or not self.lease.is_held(now):
            return None
        # The last free slot is for the oldest claim of either kind.
        if other and len(self._free) == 1 and other[0].order < own[0].order:
            return None
        entry, slot = own.popleft(), self._free.pop()
        started = Started(slot, entry.claim, entry.task, now, owner, entry.since)
        self._started[slot] = started
        self._at_work[kind] += 1
        return started

    # ---------------------------------------------------------------------------------- hints

    def _others(self, kind: JobKind) -> int:
        return min(len(self._waiting[1 - kind]), len(self._free))

    def _startable(self, *, spare: bool = True) -> tuple[int, int]:
        free = len(self._free)
        threads, coroutines = len(self._waiting[0]), len(self._waiting[1])
        if spare and self.has_plenty():
            threads = 0 if self._at_work[JobKind.THREAD] else 1
        return min(threads, free), min(coroutines, free)

    def _hint(self, counts: tuple[int, int]) -> None:
        for kind, count in enumerate(counts):
            if count:
                self._hints[kind](count)


def _ignore(count: int) -> None:
    """Ignore hints for a kind without a runner."""
