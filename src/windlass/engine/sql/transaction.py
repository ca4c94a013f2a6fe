"""One write transaction: the job rows that it moves, and its bookkeeping.

Operations change jobs through `SqlTransaction.move`, which asks the pure state machine for the
effect of an event and writes the row back. The hot paths (put, claim, success) have their own
statements and only report to the bookkeeping. Each engine writes counters and totals at the end.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from windlass.core.durations import LATEST_MS
from windlass.core.ids import blake2b, release_of
from windlass.core.longest_lease import LongestLease
from windlass.core.queues.labels import queue_of
from windlass.core.queues.settings import USUAL, QueueSettings, paused_tasks
from windlass.core.states import (
    SUSPECT_AFTER_LOSSES,
    Counters,
    Event,
    Reason,
    State,
    charge,
    next_state,
)
from windlass.engine.contract import MAX_FAILURES, MIN_RECORD_MS, EngineOptions
from windlass.engine.sql.statements import Statements
from windlass.engine.sql.wakeup import ReadyLine, ReadyTask
from windlass.engine.wakeup import POLL_FLOOR_MS

#: Names of counted events in the totals; other events are not counted.
_TOTALS = {
    Event.RETRY: "retried",
    Event.LOSE: "lost",
    Event.CRASH: "crashed",
    Event.EXPIRE: "expired",
    Event.SNOOZE: "snoozed",
    Event.UNROUTABLE: "unroutable",
}
_ENDINGS = {State.SUCCEEDED: "succeeded", State.DEAD: "dead", State.CANCELLED: "cancelled"}
#: Events that clear a suspect, because the job itself ran to its end.
_CLEARING = frozenset({Event.RETRY, Event.BURY, Event.SNOOZE, Event.REVIVE})
#: Events that put a job at the end of its line. After other events, the job returns to its old
#: place.
_REQUEUEING = frozenset({Event.DUE, Event.REVIVE})


class JobRow(msgspec.Struct):
    """Columns that a move may change, in the order of the `load_*` statements."""

    row: int
    id: str
    task: str
    queue: str
    place: int
    state: str
    hold: str | None
    reason: str | None
    suspect: int
    cancel_requested: int
    attempt: int
    starts: int
    crashes: int
    losses: int
    interruptions: int
    snoozes: int
    strays: int
    ready_ms: int | None
    due_ms: int | None
    expires_ms: int | None
    finished_ms: int | None
    keep_until_ms: int | None
    session: str | None
    token: str | None
    last_end: int | None
    progress: bytes | None
    result: bytes | None

    @property
    def counters(self) -> Counters:
        return Counters(
            self.attempt,
            self.starts,
            self.crashes,
            self.losses,
            self.interruptions,
            self.snoozes,
            self.strays,
        )

    @counters.setter
    def counters(self, counters: Counters) -> None:
        for name in counters.__struct_fields__:
            setattr(self, name, getattr(counters, name))


@lru_cache(maxsize=256)
def end_mark(token: str, event: str) -> int:
    """Identify how a holder ended its claim: 48 bits stand for the token and the event, so that a
    repeat of the same end is recognised. Only the current token lets a holder change a job."""
    return int.from_bytes(blake2b(f"{event} {token}".encode(), digest_size=6).digest())


@lru_cache(maxsize=16)
def unpack_settings(stored: str) -> Mapping[str, QueueSettings]:
    """Decode the settings of queues that differ from the default."""
    return msgspec.json.decode(stored, type=dict[str, QueueSettings]) if stored else {}


@lru_cache(maxsize=16)
def unpack_paused(stored: str) -> tuple[str, ...]:
    """The paused tasks, which are stored with the settings of queues."""
    return tuple(paused_tasks(unpack_settings(stored)))


def read_settings(db: Statements) -> Mapping[str, QueueSettings]:
    return unpack_settings(db.first("read_queues"))


class SqlTransaction(Statements):
    """State of one write transaction. `now_ms` is constant for the whole transaction."""

    queues: str  # the stored settings of queues
    last_seen_ms: int | None
    reap_after_ms: int
    longest: LongestLease

    def __init__(self, now_ms: int, options: EngineOptions) -> None:
        self.now_ms = now_ms
        self.options = options
        self.counts: dict[tuple[str, str], int] = defaultdict(int)
        self.totals: dict[str, int] = defaultdict(int)
        self.enqueued: dict[tuple[str, str], int] = {}  # line and task -> number of new jobs
        self.touched: set[str] = set()  # lines that may have another first job now
        #: line -> number of idle sessions to wake
        self.made_ready: dict[ReadyLine, int] = defaultdict(int)
        self.ready_tasks: list[ReadyTask] = []  # the tasks of these jobs, where they are known
        self.ended: list[str] = []  # jobs that may have ended or were removed, for waiting callers

    # ------------------------------------------------------------------ what each engine has

    @abstractmethod
    def next_number(self) -> int:
        """Return the next place in line."""

    @abstractmethod
    def insert_job(self, record: tuple[Any, ...], payload: bytes) -> int | None:
        """Store a new job at the end of the line; return its row. None: its id is known."""

    @abstractmethod
    def insert_copy(self, record: tuple[Any, ...], payload: bytes) -> int:
        """Store a copied job at the end of the line; return its row. Its id is not known."""

    @abstractmethod
    def store_payload(self, row: int, payload: bytes) -> None:
        """Replace the envelope of a job."""

    @abstractmethod
    def delete_job(self, row: int) -> None:
        """Remove the record of a job, with its payload and history."""

    @abstractmethod
    def write_counts(self) -> None:
        """Write the numbers of records. Called before they are read, and before the commit."""

    @abstractmethod
    def arrive(self, row: int, task: str, line: str, rank: int) -> None:
        """Note a new ready job, with its row as its place. `rank` does not include its age."""

    def touch_queue(self, queue: str) -> None:
        """Note that all lines of a queue changed, for an engine with an index of lines."""
        return

    def lock_settings(self) -> Mapping[str, QueueSettings]:
        """Keep other transactions from changing the settings of queues, and return them."""
        return unpack_settings(self.queues)

    def lock(self, *names: str) -> None:
        """Wait for other transactions that have locked this name, until they have ended. An engine
        with one writer needs no locks."""
        self.lock_all([names])

    def lock_all(self, names: Iterable[Sequence[str]]) -> None:
        """Lock names in one order for all transactions, so that no two of them wait for each
        other."""
        return

    def lock_keys(self, keys: Iterable[tuple[str, str]]) -> None:
        """Lock unique or idempotency keys, each with its task, as `lock_all` does, and then the
        jobs to which they lead."""
        return

    # ----------------------------------------------------------------------------- records

    def load(self, name: str, *values: Any) -> list[JobRow]:
        return [JobRow(*row) for row in self.rows(name, *values)]

    def job(self, job_id: str) -> JobRow | None:
        found = self.load("load_job", job_id)
        return found[0] if found else None

    def job_to_end(self, job_id: str) -> JobRow | None:
        """Return a job whose claim ends. The time of the transaction is not before its lock."""
        return self.job(job_id)

    def knows(self, job_id: str) -> bool:
        """Return whether a job is stored."""
        return self.job(job_id) is not None

    # ---------------------------------------------------------------------------------- moves

    def move(
        self,
        job: JobRow,
        event: Event,
        *,
        started: bool = True,
        delay_ms: int | None = None,
        reason: Reason | None = None,
        error: bytes | None = None,
        suspected: bool = False,
        fingerprint: str = "",
    ) -> None:
        """Apply an event to a job and write the row back. The state table must allow the event."""
        if error is not None:
            self.add_failure(job, event, error)
        source = State(job.state)
        target = next_state(source, event, cancel_requested=bool(job.cancel_requested))
        assert target is not None, "removal has its own statement"
        job.counters = charge(job.counters, event, started=started)
        job.token = None
        job.hold = None
        due_ms, job.due_ms = job.due_ms, None
        if event in _REQUEUEING:
            job.place = self.next_number()
            job.ready_ms = due_ms if event is Event.DUE and due_ms is not None else self.now_ms
            self.note_age(job.row, job.queue)
        if event in _CLEARING:
            job.suspect = 0
        elif suspected or (event is Event.LOSE and job.losses >= SUSPECT_AFTER_LOSSES):
            job.suspect = 1
        if target.is_final:
            self._end(job, target, event, reason)
        elif delay_ms is not None:
            job.due_ms = min(self.now_ms + delay_ms, LATEST_MS)
        job.state = target
        self.count_move(job.queue, source, target)
        if target is State.READY:
            self.note_ready(job.queue, job.task, suspects=bool(job.suspect))
        elif job.due_ms is not None:
            self.note_due(job.queue, job.due_ms)
        if event in _TOTALS:
            self.totals[_TOTALS[event]] += 1
        self.save(job)
        if target is State.DEAD:
            self.enter_dead_group(job, fingerprint)
        elif source is State.DEAD:
            self.leave_dead_group(job.row)

    def _end(self, job: JobRow, target: State, event: Event, reason: Reason | None) -> None:
        is_cancelled = target is State.CANCELLED and event is not Event.EXPIRE
        job.reason = Reason.CANCELLED if is_cancelled else reason
        job.finished_ms = self.now_ms
        self.ended.append(job.id)
        job.keep_until_ms = self.now_ms + max(self.options.dead_ttl_ms, MIN_RECORD_MS)
        self.totals[_ENDINGS[target]] += 1

    def save(self, job: JobRow) -> None:
        _, _, _, _, *changed = msgspec.structs.astuple(job)
        self.run("save_job", job.row, *changed)

    def remove(self, row: int, queue: str, state: str) -> None:
        self.delete_job(row)
        self.counts[queue, state] -= 1
        if state == State.READY:
            self.touched.add(queue)
        elif state == State.DEAD:
            self.leave_dead_group(row)

    def enter_dead_group(self, job: JobRow, fingerprint: str) -> None:
        """Count a dead job in its group."""
        release = release_of(job.session) or ""
        names = (fingerprint, release, queue_of(job.queue), job.task)
        ((group,),) = self.rows("add_to_dead_group", *names)
        self.run("add_death", job.row, group, job.finished_ms)

    def leave_dead_group(self, row: int) -> None:
        """Take a job from its group, and forget the group with its last job."""
        for (group,) in self.rows("remove_death", row):
            self.run("take_from_dead_group", group)
            self.run("forget_dead_group", group)

    def add_failure(self, job: JobRow, event: Event, error: bytes) -> None:
        self.run("add_failure", job.row, self.now_ms, str(event), job.attempt, job.session, error)
        self.run("trim_failures", job.row, MAX_FAILURES)

    # ---------------------------------------------------------------------------- bookkeeping

    def count_move(self, queue: str, source: State, target: State, number: int = 1) -> None:
        if source is not target:
            self.counts[queue, source] -= number
            self.counts[queue, target] += number
        if State.READY in (source, target):
            self.touched.add(queue)

    def note_ready(
        self, line: str, task: str | None = None, number: int = 1, *, suspects: bool = False
    ) -> None:
        """Note ready jobs: an idle session should be woken for each of them."""
        self.made_ready[ReadyLine(line, suspects)] += number
        if task is not None:
            self.ready_tasks.append((line, suspects, task, number))

    def note_due(self, line: str, due_ms: int) -> None:
        """Note a job that falls due before idle workers poll again."""
        if due_ms - self.now_ms <= POLL_FLOOR_MS:
            self.note_ready(line)

    def note_age(self, row: int, line: str) -> None:
        """Store the age of a queue that has ever aged with a job that takes its place."""
        age = self.grow_age(line)
        if age:
            self.run("set_age", row, age)

    def grow_age(self, line: str) -> int:
        """Return the age of a queue for a job that takes its place, and store it as the new age of
        the queue."""
        if not self.queues:
            return 0
        settings, queue = unpack_settings(self.queues), queue_of(line)
        own = settings.get(queue, USUAL)
        aged = own.aged(self.now_ms)
        if aged is not own:
            settings = self.lock_settings()
            aged = settings.get(queue, USUAL).aged(self.now_ms)
            self.write_queues({**settings, queue: aged})
        return aged.age

    def write_queues(self, settings: Mapping[str, QueueSettings]) -> None:
        kept = {queue: own for queue, own in settings.items() if own != USUAL}
        self.queues = msgspec.json.encode(kept).decode() if kept else ""
        self.run("write_queues", self.queues)

    def note_seen(self) -> None:
        """Record a sign of life of a worker. After a silence of all workers, give all of them time
        for a heartbeat: the engine or this machine was down, not the workers."""
        now, lease, last = self.now_ms, self.options.lease_ms, self.last_seen_ms
        self.last_seen_ms = now
        if last is None or 0 <= now - last <= lease // 2:
            self.longest = self.longest.heard(lease, now)
            return
        self.longest = self.longest.after_silence(lease, last, now)
        self.reap_after_ms = now + self.longest.lease_ms // 2
        if now < last:
            self.run("clamp_sessions", now + self.longest.lease_ms)
