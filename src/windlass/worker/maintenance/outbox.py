"""The relay of an outbox: one thread that moves jobs from the caller's database into the engine.

1. Take a batch of rows that no other relay has, put their jobs into the engine, delete the rows. A
   relay that dies in between leaves the rows to others: they put the same ids again, which changes
   nothing.
2. Poll often while jobs arrive, otherwise about every second. Any number of workers may relay.
3. A job that the engine refuses stays in the outbox, and is tried again later, longer each time. It
   delays no other job. A key that another job has is logged: the caller cannot be told.
4. While the outbox or the engine is away, keep trying; log the beginning and the end of the outage.

The times of a call count from its insert, although its job is put later.
"""

from __future__ import annotations

from collections.abc import Sequence
from logging import getLogger
from random import uniform
from threading import Event, Thread
from time import monotonic
from typing import Final

from msgspec.structs import replace

from windlass.core.durations import describe_ms
from windlass.core.queues.labels import queue_of
from windlass.engine.contract import BATCH, BATCH_BYTES, Engine, NewJob, Placed, PutCode
from windlass.errors import DecodeError, EngineError, EngineUnavailable
from windlass.outbox.connect import open_outbox
from windlass.outbox.record import decode
from windlass.outbox.rows import LEASE_MS, OutboxRow, OutboxRows, Postponed
from windlass.outbox.url import OutboxUrl
from windlass.worker.logs.events import LogEvent, Notices

log = getLogger("windlass.worker")

#: The wait before the next look, in seconds: after rows, for `BUSY_S` more, and otherwise.
SOON_S: Final = 0.1
BUSY_S: Final = 5.0
IDLE_S: Final = 1.0
#: The longest wait after a failed look, in seconds.
AGAIN_S: Final = 2.0
#: Rows taken longer ago are given back, in seconds: this process was stopped meanwhile, and other
#: relays may have put their jobs.
STALE_S: Final = LEASE_MS / 3000
#: The delays before a refused job is tried again: the first one, and the longest one, in
#: milliseconds. A full queue may have room soon.
REFUSED_MS: Final = (10_000, 600_000)
FULL_MS: Final = (500, 5_000)
#: The longest error that is stored with a row, in characters.
MOST_ERROR: Final = 500


class OutboxRelay:
    """Relays the outbox at `url` into `engine`, which it ends if it owns it."""

    def __init__(self, engine: Engine, url: OutboxUrl, *, ends_engine: bool = True) -> None:
        self._engine = engine
        self._url = url
        self._rows: OutboxRows | None = None
        self._ends_engine = ends_engine
        self._stopping = Event()
        self._busy_until = 0.0
        self._is_checked = False  # the tables are those of this version
        self._trouble = ""  # the last problem of the outbox that was logged
        self._full = Notices()
        #: By the monotonic clock: when rows were relayed last, and when the last look began that
        #: found none, or failed.
        self.relayed_at = self.looked_at = 0.0
        self._thread = Thread(target=self._run, name="outbox-relay", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Finish the batch, then stop."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._stopping.wait(self._attempt())
        if self._rows is not None:
            self._rows.close()
        if self._ends_engine:
            self._engine.shutdown()

    def _attempt(self) -> float:
        """Look once; return the seconds until the next look."""
        try:
            return self.look()
        except EngineUnavailable as error:  # other threads of the worker log this outage
            log.debug(LogEvent.OUTBOX_ENGINE_AWAY, error)
        except Exception:
            log.exception(LogEvent.OUTBOX_FAILED)
        return uniform(0.2, AGAIN_S)

    def look(self) -> float:
        """Relay one batch; return the seconds until the next look. Raises `EngineUnavailable` if
        the engine is away."""
        began_at = monotonic()
        try:
            rows = self._take()
        except EngineError as error:
            self._note_trouble(error)
            self.looked_at = began_at
            return uniform(0.2, AGAIN_S)
        if not rows:
            self.looked_at = began_at
            return SOON_S if began_at < self._busy_until else uniform(0.7, 1.0) * IDLE_S
        try:
            done, postponed = self._relay(rows, began_at + STALE_S)
        except EngineUnavailable:
            self._settle([], [])
            raise
        self._settle(done, postponed)
        self.relayed_at = monotonic()
        self._busy_until = self.relayed_at + BUSY_S
        return 0.0 if done else SOON_S

    # --------------------------------------------------------------------------- with the outbox

    def _take(self) -> list[OutboxRow]:
        if self._rows is None:
            self._rows = open_outbox(self._url)
        if not self._is_checked:
            self._rows.check_format()
            self._is_checked = True
        rows = self._rows.take(BATCH, BATCH_BYTES)
        if self._trouble:
            self._trouble = ""
            log.warning(LogEvent.OUTBOX_BACK, self._url.location)
        return rows

    def _settle(self, done: Sequence[int], postponed: Sequence[Postponed]) -> None:
        """End the batch. If the outbox is away, the rows are relayed again, which is harmless."""
        assert self._rows is not None, "the batch came from there"
        try:
            if done or postponed:
                self._rows.settle(done, postponed)
            else:
                self._rows.give_back()
        except EngineError as error:
            self._note_trouble(error)

    def _note_trouble(self, error: EngineError) -> None:
        """Log an outage once, however its error changes, and any other error that is new."""
        self._is_checked = False
        is_outage = isinstance(error, EngineUnavailable)
        if not self._trouble or (not is_outage and self._trouble != str(error)):
            log.warning(LogEvent.OUTBOX_AWAY, error)
        self._trouble = str(error)

    # --------------------------------------------------------------------------- with the engine

    def _relay(
        self, rows: Sequence[OutboxRow], stale_at: float
    ) -> tuple[list[int], list[Postponed]]:
        """Put the jobs of rows; return the rows that are done, and those that stay."""
        jobs: list[tuple[OutboxRow, NewJob]] = []
        postponed: list[Postponed] = []
        for row in rows:
            try:
                jobs.append((row, _since_insert(decode(row.body), row.age_ms)))
            except DecodeError as error:
                postponed.append(self._refuse(row, error))
        done: list[int] = []
        for (row, job), placed in zip(jobs, self._put(jobs, stale_at), strict=False):
            if isinstance(placed, Exception):
                postponed.append(self._refuse(row, placed))
            elif placed.code is PutCode.FULL:
                postponed.append(self._wait_for_room(row, job))
            else:
                done.append(row.position)
                _log_verdict(job, placed)
        return done, postponed

    def _put(
        self, jobs: Sequence[tuple[OutboxRow, NewJob]], stale_at: float
    ) -> Sequence[Placed | Exception]:
        """Put jobs, all at once or, if the engine refuses one of them, in halves. What would be put
        too late is left out: the result may be that of the first jobs only."""
        if jobs and monotonic() > stale_at:
            raise EngineUnavailable("This process was stopped for seconds; other relays continue.")
        found: list[Placed | Exception] = []
        parts = [jobs] if jobs else []
        while parts and monotonic() <= stale_at:
            part = parts.pop()
            try:
                found += self._engine.put([job for _, job in part])
            except EngineUnavailable:
                raise
            except Exception as error:  # noqa: BLE001  # stored with its row, and logged
                if len(part) == 1:
                    found.append(error)
                else:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
        return found

    # ------------------------------------------------------------------------- what is not stored

    def _refuse(self, row: OutboxRow, error: Exception) -> Postponed:
        delay_ms = _delay_ms(row.tries, *REFUSED_MS)
        why = " ".join(str(error).split()) or type(error).__name__
        log.error(LogEvent.OUTBOX_JOB_REFUSED, row.id, describe_ms(delay_ms), why)
        return Postponed(row.position, delay_ms, why[:MOST_ERROR])

    def _wait_for_room(self, row: OutboxRow, job: NewJob) -> Postponed:
        queue = queue_of(job.queue)
        if self._full.is_due(queue):
            log.warning(LogEvent.OUTBOX_QUEUE_FULL, queue)
        delay_ms = _delay_ms(row.tries, *FULL_MS)
        return Postponed(row.position, delay_ms, f"The queue {queue} is full.")


def _since_insert(job: NewJob, age_ms: int) -> NewJob:
    """The job with delays that count from its insert."""
    if job.run_in_ms == 0 and job.expires_in_ms is None:
        return job
    expires_in_ms = job.expires_in_ms
    return replace(
        job,
        run_in_ms=max(0, job.run_in_ms - age_ms),
        expires_in_ms=None if expires_in_ms is None else max(0, expires_in_ms - age_ms),
    )


def _delay_ms(tries: int, first_ms: int, longest_ms: int) -> int:
    return min(longest_ms, first_ms << min(tries, 16))


def _log_verdict(job: NewJob, placed: Placed) -> None:
    """Log a job that was dropped because its key is taken, if its caller wanted an error."""
    if placed.code is PutCode.CONFLICT:
        log.warning(LogEvent.OUTBOX_KEY_CONFLICT, job.id, job.task, placed.id)
    elif placed.code is PutCode.DUPLICATE:
        log.warning(LogEvent.OUTBOX_DUPLICATE, job.id, job.task, placed.id)
