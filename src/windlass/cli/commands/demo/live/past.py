"""The past hour of the live demo, which `seed_past` lives through in a few seconds.

`seed_past` moves the clock of an engine with no data from an hour ago until now, in steps of 20
seconds. In each step jobs arrive, schedules fire, and `PastWorker`s claim and run jobs by the verbs
of the engine contract, as real workers do. So records, history and failures are what real workers
would have left. The same seed gives the same jobs.

`past_days` first adds the history of the days before. `STORY` lists what happens in addition to the
load: a deployment, a lost worker, crashes, a pause.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import msgspec

from windlass import Cron, Every
from windlass.app import Windlass
from windlass.cli.commands.demo.live import tasks
from windlass.cli.commands.demo.live.load import calls_of, calls_of_next_release
from windlass.cli.commands.demo.live.past_days import record_days
from windlass.cli.commands.demo.live.past_worker import SLOTS, PastRun, PastWorker
from windlass.context import Report
from windlass.core.history import MINUTE_MS
from windlass.engine.clock import read_clock
from windlass.engine.contract import Claim, Plan, Progressed
from windlass.lost_sessions import LossKind, try_note_loss
from windlass.task import Call
from windlass.testing.stages import HereStage
from windlass.worker.maintenance.schedules import Scheduler, declarations

MINUTES: Final = 60
STEP_S: Final = 20
#: The first second of the load: a newsletter goes out in the last minute.
FIRST_SECOND: Final = 60
#: A worker claims at most this many jobs in a step.
MOST_CLAIMED: Final = 36
#: How often outcomes are reported in a step.
REPORTS: Final = 4
#: How long a monthly report takes, in seconds.
LONG_S: Final = (90, 240)
LOSS: Final = "no heartbeat for a lease"
CRASH: Final = "signal 9 (SIGKILL)"
POISON: Final = "broken-poster"


class LongRun(msgspec.Struct, frozen=True):
    """A run that takes several steps."""

    worker: PastWorker
    claim: Claim
    began_ms: int
    takes_ms: int


class SeededPast(msgspec.Struct, frozen=True, kw_only=True):
    """What `seed_past` made."""

    jobs: int
    runs: int
    #: The workers that are still live, if they were kept. Their leases end without heartbeats.
    workers: tuple[PastWorker, ...]


def seed_past(app: Windlass, *, seed: int = 1, keep_workers: bool = False) -> SeededPast:
    """Fill the engine of `tasks.app` with an hour of work. The engine must have no data yet, and
    no other process may use it meanwhile.

    The workers of the past end: real workers take over their jobs. With `keep_workers` they stay,
    with the jobs that they run, until their leases end: give the app a long `lease` then, as in
    WINDLASS_LEASE=1h."""
    with _silent_log():
        past = PastHour(app, seed)
        try:
            return past.live(keep_workers=keep_workers)
        finally:
            past.close()


@contextmanager
def _silent_log() -> Iterator[None]:
    """Keep the log lines of workers of the past from the terminal."""
    log = logging.getLogger("windlass")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


class PastHour:
    """One run of `seed_past`."""

    def __init__(self, app: Windlass, seed: int) -> None:
        self._app = app
        self._engine = app.engine
        self._random = Random(seed)
        self._seed = seed
        self._stage = HereStage()
        self._end_ms = read_clock(self._engine)
        self._skew_ms = self._end_ms - time.time_ns() // 1_000_000
        # A minute begins with a step, so that each minute has a report of its own.
        self._begin_ms = self._end_ms - self._end_ms % (STEP_S * 1000) - MINUTES * MINUTE_MS
        self._now_ms = self._begin_ms
        self._scheduler = Scheduler(self._engine, declarations(app))
        self._workers: list[PastWorker] = []
        self._long: list[LongRun] = []
        self._lost: PastWorker | None = None
        self._held: list[str] = []
        self._jobs = self._runs = 0

    def close(self) -> None:
        self._engine.clock_offset_ms = 0
        self._stage.close()

    def live(self, *, keep_workers: bool) -> SeededPast:
        record_days(self._engine, self._begin_ms, self._set_clock, self._random)
        self._go_to(self._begin_ms)
        self._scheduler.declare()
        for step in range(MINUTES * 60 // STEP_S):
            second = step * STEP_S
            at_ms = self._begin_ms + second * 1000
            if at_ms % MINUTE_MS == 0:
                self._end_minute()
            self._go_to(at_ms)
            if second in STORY:
                STORY[second](self)
            self._step(FIRST_SECOND + second)
        self._save_late_schedule()
        self._go_to(self._end_ms)
        self._settle(keep_workers=keep_workers)
        return SeededPast(jobs=self._jobs, runs=self._runs, workers=tuple(self._workers))

    def _go_to(self, at_ms: int) -> None:
        """Move the clock forward to this instant."""
        self._now_ms = max(self._now_ms, at_ms)
        self._set_clock(self._now_ms)

    def _set_clock(self, at_ms: int) -> None:
        real_ms = time.time_ns() // 1_000_000 + self._skew_ms
        self._engine.clock_offset_ms = at_ms - real_ms

    # ------------------------------------------------------------------------------- one step

    def _step(self, second: int) -> None:
        self._engine.beat([worker.beat() for worker in self._workers])
        self._scheduler.look()
        self._enqueue(
            call for at in range(STEP_S) for call in calls_of(second + at, seed=self._seed)
        )
        runs: list[tuple[int, PastRun]] = []
        for worker in self._workers:
            self._go_to(self._now_ms + self._random.randrange(20, 600))
            for claim in worker.claim(MOST_CLAIMED):
                if claim.task == tasks.monthly.name:
                    self._begin_long(worker, claim)
                else:
                    run = worker.run(claim, self._stage)
                    runs.append((self._now_ms + int(run.seconds * 1000), run))
        self._report(sorted(runs, key=lambda pair: pair[0]))
        self._continue_long()

    def _enqueue(self, calls: Iterable[Call[Any]]) -> None:
        self._jobs += len(self._app.enqueue_many(calls))

    def _report(self, runs: list[tuple[int, PastRun]]) -> None:
        """Report runs in the order in which they end, some at a time."""
        size = max(1, -(-len(runs) // REPORTS))
        for at in range(0, len(runs), size):
            batch = runs[at : at + size]
            self._go_to(batch[-1][0])
            self._engine.finish([outcome for _, run in batch for outcome in run.outcomes])
            for _, run in batch:
                run.worker.count(run)
        self._runs += len(runs)

    def _begin_long(self, worker: PastWorker, claim: Claim) -> None:
        takes_ms = self._random.randrange(*LONG_S) * 1000
        self._long.append(LongRun(worker, claim, self._now_ms, takes_ms))

    def _continue_long(self) -> None:
        """Report the progress of long runs, and the end of those that are over."""
        ended = [run for run in self._long if self._now_ms >= run.began_ms + run.takes_ms]
        self._long = [run for run in self._long if run not in ended]
        self._engine.finish([_progress(run, self._now_ms) for run in self._long])
        for long in ended:
            run = long.worker.run(long.claim, self._stage)
            took_s = (self._now_ms - long.began_ms) / 1000
            self._report([(self._now_ms, msgspec.structs.replace(run, seconds=took_s))])

    def _end_minute(self) -> None:
        for worker in self._workers:
            worker.record()
        while self._engine.tend().more:
            pass

    # ------------------------------------------------------------------------------ the story

    def start_workers(self, release: str = tasks.OLD_RELEASE) -> None:
        for host, pid in (("web-1", 2101), ("web-2", 1874), ("batch-1", 733)):
            self._start_worker(host, pid if release == tasks.OLD_RELEASE else pid + 3000, release)

    def _start_worker(self, host: str, pid: int, release: str) -> None:
        worker = PastWorker(self._app, host, pid, release, self._now_ms, self._random)
        self._workers.append(worker)
        self._engine.beat([worker.beat()])

    def deploy(self) -> None:
        """Replace all workers by workers of the new release."""
        self._end_workers()
        self.start_workers(tasks.NEW_RELEASE)

    def _end_workers(self) -> None:
        for worker in self._workers:
            worker.record()
            self._engine.close(worker.session, (), "the end of the worker")
        self._workers.clear()
        self._long.clear()

    def lose_worker(self) -> None:
        """A machine fails: its worker holds jobs, and sends no heartbeat any more."""
        lost = self._find("web-2")
        own = [run.claim for run in self._long if run.worker is lost]
        self._held = [claim.id for claim in (*own, *lost.claim(4))]
        self._workers.remove(lost)
        self._lost = lost
        self._long = [run for run in self._long if run.worker is not lost]

    def replace_lost_worker(self) -> None:
        if self._lost is not None:
            self._engine.lose(self._lost.session, LOSS)  # unless a claim has noticed it before
            self._note_loss(self._lost, LossKind.EXPIRED, LOSS, self._held)
        self._start_worker("web-3", 912, tasks.NEW_RELEASE)

    def enqueue_poison(self) -> None:
        """One job kills its process in each attempt, and becomes a dead letter."""
        self._enqueue([tasks.render.using(priority=100).bind(POISON)])
        self._crash(Plan(queues=("reports",), tasks=(tasks.render.name,)))
        alone = Plan(suspects=True)
        for _ in range(self._app.settings.max_crashes - 1):
            self._crash(alone)
        worker = self._find("batch-1")
        for claim in worker.claim(1, alone):  # not run any more
            self._report([(self._now_ms, worker.run(claim, self._stage))])

    def crash_with_two_suspects(self) -> None:
        """A process dies while it runs two jobs: each of them must run alone."""
        self._enqueue(tasks.render.using(priority=100).bind("poster") for _ in range(2))
        self._crash(Plan(queues=("reports",), tasks=(tasks.render.name,)), limit=2)

    def _crash(self, plan: Plan, limit: int = 1) -> None:
        worker = self._find("batch-1")
        suspects = [claim.id for claim in worker.claim(limit, plan)]
        self._go_to(self._now_ms + 1500)
        self._engine.close(worker.session, suspects, CRASH)
        self._note_loss(worker, LossKind.CRASHED, CRASH, suspects)
        self._long = [run for run in self._long if run.worker is not worker]
        worker.start_child()
        self._engine.beat([worker.beat()])

    def _note_loss(
        self, worker: PastWorker, kind: LossKind, cause: str, held: Sequence[str]
    ) -> None:
        """Add a session to the list of lost ones, as workers do."""
        try_note_loss(
            *(self._engine, worker.session, kind, cause, worker.introduce(), held),
            job_count=len(held),
            suspects=held if kind is LossKind.CRASHED else (),
        )

    def _find(self, host: str) -> PastWorker:
        return next(worker for worker in self._workers if worker.host == host)

    def pause_imports(self) -> None:
        """An operator pauses a queue and a schedule, until the supplier has repaired its file."""
        name = "prices-of-acme"
        self._app.schedules.save(name, tasks.import_prices.bind("acme", 1), Cron("0 5 * * *"))
        self._app.schedules.pause(name)
        self._app.queue("imports").pause()
        self._app.audit.add(actor="token:ann", action="http.pause_queue", subject="imports")
        self._app.audit.add(actor="token:ann", action="http.pause_schedule", subject=name)

    def deploy_next_release_too_early(self) -> None:
        """A producer of the next release enqueues a task that no worker knows."""
        newer = Windlass()
        with newer.replace_engine(self._engine):
            self._jobs += len(newer.enqueue_many(calls_of_next_release(newer, 3)))

    def operate(self) -> None:
        """An operator runs a schedule, and cancels a job."""
        job = self._app.schedules.run_now("payments.payout")
        self._app.audit.add(
            actor="token:ann", action="http.run_schedule", subject="payments.payout"
        )
        job.cancel()
        self._app.audit.add(actor="token:ben", action="http.cancel_job", subject=job.id)

    # -------------------------------------------------------------------------------- the end

    def _save_late_schedule(self) -> None:
        """Save a schedule whose next occurrence is over by some minutes, and not fired."""
        self._set_clock(self._end_ms - 10 * MINUTE_MS)
        call = tasks.import_prices.bind("zenith", 1)
        self._app.schedules.save("prices-of-zenith", call, Every("7m"))

    def _settle(self, *, keep_workers: bool) -> None:
        """Leave a backlog, and either running jobs or no worker."""
        self._end_minute()
        self._enqueue(calls_of(0, seed=self._seed))
        if not keep_workers:
            self._end_workers()
            return
        self._engine.beat([worker.beat() for worker in self._workers])
        for worker in self._workers:
            held = sum(run.worker is worker for run in self._long)
            for claim in worker.claim(SLOTS - 2 - held):
                if claim.task not in self._app.known_tasks:
                    self._report([(self._now_ms, worker.run(claim, self._stage))])


def _progress(run: LongRun, now_ms: int) -> Progressed:
    share = min(0.97, (now_ms - run.began_ms) / run.takes_ms)
    day = int(share * tasks.REPORT_PARTS) + 1
    progress = msgspec.json.encode(Report(share, f"day {day}"))
    return Progressed(id=run.claim.id, token=run.claim.token, progress=progress)


#: What happens in addition to the load, by the second of the past hour.
STORY: Final[dict[int, Callable[[PastHour], None]]] = {
    0: PastHour.start_workers,
    35 * 60: PastHour.pause_imports,
    40 * 60: PastHour.deploy,
    44 * 60: PastHour.lose_worker,
    45 * 60: PastHour.replace_lost_worker,
    48 * 60: PastHour.enqueue_poison,
    52 * 60: PastHour.operate,
    55 * 60: PastHour.deploy_next_release_too_early,
    58 * 60: PastHour.crash_with_two_suspects,
}
