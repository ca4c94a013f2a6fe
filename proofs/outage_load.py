"""Workers under load on a private server, and a check of every job at the end.

1. A server that the proof stops, a yard with workers and, for some proofs, a proxy between them.
   The proof itself connects to the server directly.
2. A producer enqueues jobs all the time, and repeats a failed enqueue with the same key.
3. `resume` measures the time until a new job is enqueued, claimed, run and reported.
4. At the end every job has ended, workers stop by themselves, and the counters of its record
   explain every extra start of a job.
5. `prove_long_job` and `prove_enqueue` are the same for every server.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import pytest

from tests.proxy import Proxy
from tests.worker.yard import Worker, Yard, until
from windlass import EngineUnavailable, State, Windlass
from windlass.engine.contract import JobRecord
from windlass.task import Task

LEASE: Final = "5s"
#: After an outage workers continue within this time, in seconds.
RESUMED_S: Final = 5.0
#: The number of jobs before the first outage.
BACKLOG: Final = 1_000
CHUNK: Final = 100
#: How long a job runs, and how long the producer waits after each, in seconds.
JOB_S: Final = 0.05
EVERY_S: Final = 0.02
#: When an enqueue fails by default, in seconds, and how much later or earlier on a busy machine.
ENQUEUE_S: Final = 5.0
TOLERANCE_S: Final = 1.0
LONG_JOB_S: Final = 40.0
LONG_OUTAGE_S: Final = 20.0


class Server(Protocol):
    """A private server of any engine."""

    port: int

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def end(self) -> None: ...


S = TypeVar("S", bound=Server)


class Scene(Generic[S]):
    """A server, a proxy, workers behind it, and a producer."""

    def __init__(self, folder: Path, server: S, url: str, *, is_proxied: bool) -> None:
        self.server = server
        self.proxy = Proxy(server.port)
        self.url = url
        self.yard = Yard(folder, LEASE, "10s", 3, url)
        self._workers_url = url
        if is_proxied:
            self._workers_url = url.replace(f":{server.port}/", f":{self.proxy.port}/")
        self.workers: list[Worker] = []
        self._labels: dict[str, str] = {}  # label -> id of the job
        self._probes = 0
        self._is_over = threading.Event()
        self._producer = threading.Thread(target=self._produce, daemon=True)

    def start_workers(self, number: int, *, processes: int = 1, slots: int = 4) -> None:
        for _ in range(number):
            started = self.yard.start(processes=processes, slots=slots, url=self._workers_url)
            self.workers.append(started)
        for worker in self.workers:
            worker.await_log("ready: ")

    def load(self) -> None:
        """Enqueue more jobs than workers can run, and more all the time."""
        labels = [f"early-{number}" for number in range(BACKLOG)]
        for some in (labels[at : at + CHUNK] for at in range(0, BACKLOG, CHUNK)):
            calls = [self._call(label).bind(label, [f"sleep:{JOB_S}"]) for label in some]
            jobs = self.yard.script.plain.enqueue_many(calls)
            self._labels |= {label: job.id for label, job in zip(some, jobs, strict=True)}
        self._producer.start()
        self.work(20)

    def work(self, number: int) -> None:
        """Wait until `number` more jobs have succeeded."""
        before = self.yard.count(State.SUCCEEDED)
        until(lambda: self.yard.count(State.SUCCEEDED) >= before + number, "workers under load")

    def enqueue(self, label: str, *steps: str, priority: int = 0) -> str:
        """Enqueue until it is confirmed; the key prevents a second job. Returns the id."""
        call = self._call(label, priority)
        while True:
            with suppress(EngineUnavailable):
                self._labels[label] = call.enqueue(label, list(steps)).id
                return self._labels[label]

    def _call(self, label: str, priority: int = 0) -> Task[[str, list[str]], str]:
        return self.yard.script.plain.using(idempotency_key=label, priority=priority)

    def _produce(self) -> None:
        number = 0
        while not self._is_over.wait(EVERY_S):
            self.enqueue(f"job-{number}", f"sleep:{JOB_S}")
            number += 1

    def resume(self) -> float:
        """The time until a job that is enqueued now has succeeded, in seconds."""
        self._probes += 1
        started = time.monotonic()
        id = self.enqueue(f"probe-{self._probes}", priority=100)
        until(lambda: self.yard.record(id).state is State.SUCCEEDED, "a probe that succeeds", 60.0)
        return time.monotonic() - started

    # ------------------------------------------------------------------------------ the account

    def finish(self) -> Iterator[str]:
        """Wait until all jobs have ended, and check them."""
        self.drain()
        codes = [worker.stop() for worker in self.workers]
        yield f"exit codes of the workers after SIGTERM: {codes}"
        assert not any(codes)
        yield from self._account()

    def drain(self) -> None:
        """End the producer, and wait until all jobs have ended."""
        self._is_over.set()
        if self._producer.is_alive():
            self._producer.join()
        until(self._all_ended, "an end of all jobs", 120.0)

    def _all_ended(self) -> bool:
        ended = self.yard.count(State.SUCCEEDED) + self.yard.count(State.DEAD)
        return ended == len(self._labels)

    def _account(self) -> Iterator[str]:
        starts = Counter(line.label for line in self.yard.events("start"))
        ended = {line.label for line in self.yard.events("end")}
        records = self._records()
        lost = [label for label in self._labels if label not in ended]
        extra = {label: number - 1 for label, number in starts.items() if number > 1}
        unexplained = {
            label: number
            for label, number in extra.items()
            if number > charged_again(records[label])
        }
        totals = self.yard.app.engine.stats().totals
        yield (
            f"{len(self._labels)} jobs, lost {len(lost)}, extra starts {sum(extra.values())}, of "
            f"which unexplained {sum(unexplained.values())}; taken back from silent sessions "
            f"{totals.get('lost', 0)}, stale reports {totals.get('stale', 0)}"
        )
        assert not lost, lost[:10]
        assert not unexplained, unexplained
        assert totals["enqueued"] == len(self._labels), "an enqueue was repeated, and not known"

    def _records(self) -> dict[str, JobRecord]:
        labels, ids = list(self._labels), list(self._labels.values())
        found: list[JobRecord | None] = []
        for at in range(0, len(ids), 500):
            found += self.yard.app.engine.get(ids[at : at + 500])
        return {label: record for label, record in zip(labels, found, strict=True) if record}

    def close(self) -> None:
        self._is_over.set()
        try:
            self.yard.close()
        finally:
            self.proxy.close()
            self.server.end()


def charged_again(record: JobRecord) -> int:
    """The number of starts of a job, by its counters, that did not end by themselves."""
    counters = record.counters
    return counters.losses + counters.interruptions + counters.crashes + counters.attempt - 1


@contextmanager
def open_scene(
    folder: Path, server: S, url: str, *, is_proxied: bool = False
) -> Iterator[Scene[S]]:
    opened = Scene(folder, server, url, is_proxied=is_proxied)
    try:
        yield opened
    finally:
        opened.close()


def told(seconds: Sequence[float]) -> str:
    """Describe the resume times, and check them against the guarantee."""
    assert max(seconds) < RESUMED_S, f"resumed after {max(seconds):.2f} s"
    middle = sorted(seconds)[len(seconds) // 2]
    return f"resumed after {middle:.2f} s (median), {max(seconds):.2f} s (longest)"


def stand_still(it: Scene[S], seconds: float) -> None:
    """Wait during an outage that lets reads pass, and check that no job succeeds in it."""
    time.sleep(1.0)  # what was under way is over by then
    before = it.yard.count(State.SUCCEEDED)
    time.sleep(seconds - 1.0)
    assert it.yard.count(State.SUCCEEDED) == before
    for worker in it.workers:
        worker.await_log("lost connection to engine")


def fail_to_enqueue(app: Windlass) -> tuple[float, str]:
    task = app.task(name="nothing")(nothing)
    started = time.monotonic()
    with pytest.raises(EngineUnavailable) as caught:
        task.enqueue()
    return time.monotonic() - started, str(caught.value)


def nothing() -> None:
    """A task."""


# ---------------------------------------------------------------------------------- a long job


def kill(it: Scene[S]) -> None:
    it.server.kill()
    time.sleep(LONG_OUTAGE_S)
    it.server.start()


def vanish(it: Scene[S]) -> None:
    it.proxy.vanish()
    time.sleep(LONG_OUTAGE_S)
    it.proxy.heal()


def freeze(it: Scene[S]) -> None:
    it.proxy.freeze()
    time.sleep(LONG_OUTAGE_S)
    it.proxy.heal()


def prove_long_job(
    folder: Path, scene: Callable[[Path], AbstractContextManager[Scene[S]]]
) -> Iterator[str]:
    """One job of 40 s, an outage of 20 s in it, and a second worker that could take it over."""
    outages: dict[str, Callable[[Scene[S]], None]] = {
        "killed": kill,
        "frozen": freeze,
        "vanished": vanish,
    }
    with ThreadPoolExecutor() as pool:
        runs = {}
        for name, outage in outages.items():
            (folder / name).mkdir()
            runs[name] = pool.submit(span, scene(folder / name), outage)
        for name, run in runs.items():
            yield f"server {name} for {LONG_OUTAGE_S:g} s: {run.result()}"


def span(scene: AbstractContextManager[Scene[S]], outage: Callable[[Scene[S]], None]) -> str:
    with scene as it:
        it.start_workers(2, slots=1)
        id = it.enqueue("long", f"sleep:{LONG_JOB_S}")
        it.yard.await_start("long")
        time.sleep(5.0)  # into the middle of the job
        outage(it)
        resumed_s = it.resume()
        it.yard.await_state(id, State.SUCCEEDED)
        starts = len(it.yard.events("start", "long"))
        *_, account = it.finish()
        assert starts == 1, f"{starts} starts"
        return f"a job of {LONG_JOB_S:g} s ran once; {told([resumed_s])}; {account}"


# ------------------------------------------------------------------------------------- enqueues


def prove_enqueue(server: Server, url: str) -> Iterator[str]:
    """With the default settings of an app."""
    outages: dict[str, Callable[[Proxy], None]] = {
        "refused": Proxy.refuse,
        "frozen": Proxy.freeze,
        "vanished": Proxy.vanish,
    }
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        runs = {}
        for name, outage in outages.items():
            proxy = stack.enter_context(Proxy(server.port))
            own = url.replace(f":{server.port}/", f":{proxy.port}/")
            app = stack.enter_context(Windlass(own))
            app.engine.stats()
            outage(proxy)
            runs[name] = pool.submit(fail_to_enqueue, app)
        for name, run in runs.items():
            seconds, message = run.result()
            yield f"{name}: failed after {seconds:.2f} s: {message}"
            assert abs(seconds - ENQUEUE_S) < TOLERANCE_S
