"""The dashboard with ten million finished and a million ready jobs: how long its requests take, and
whether the engine does more for them than with a tenth of the jobs.

1. A private engine is filled through its contract, in batches of 500: every job is put, claimed and
   finished, and its result or error stays stored.
2. When a tenth is there, and at the end, the work of the engine for each request is counted: steps
   of SQLite, commands of Redis, rows that PostgreSQL reads. Both must be equal, but for a row: a
   counter that is 0 now, or another number of jobs that ended in the same millisecond.
3. `windlass serve` answers each request 50 times. The slowest of twenty (p95) must take less than
   300 ms.
"""

from __future__ import annotations

import http.client
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from tests.dashboard.backlog import (
    LATER_MS,
    Backlog,
    fill,
    fill_rare,
    record_runs,
    start_some,
)
from tests.dashboard.data_set import STORES, DataSet, Notes
from tests.dashboard.page_requests import Ask, Worked, count_work, page_requests
from tests.http.client import Client, LoopThread
from tests.http.server_process import ServerProcess
from tests.http.shop import add_tasks
from windlass import Windlass
from windlass.core.ids import new_session
from windlass.engine.contract import Engine, JobIndex, to_cursor
from windlass.http import ApiOptions, create_api

APP: Final = "tests.http.shop_app:app"
TIMES: Final = 50
MOST_MS: Final = 300.0
#: The most by which the work may differ, as a share: far below ten times.
MOST_GROWTH: Final = 0.1
#: Longer than a run of the proof: the jobs that run while requests are counted are not lost.
LEASE: Final = "2h"


class ScaleOptions(NamedTuple):
    """The options of the command."""

    engines: tuple[str, ...] = tuple(STORES)
    finished: int = 10_000_000
    ready: int = 1_000_000
    keep: Path | None = None  # the folder that keeps the data set
    use: Path | None = None  # the folder of a data set that was kept


USUAL: Final = ScaleOptions()


def prove(folder: Path, options: ScaleOptions = USUAL) -> Iterator[str]:
    if options.use is not None:
        used = DataSet.open(options.use)
        # Time has passed since a tenth was there: the history has more minutes.
        used.notes.work_at_a_tenth = {}
        yield from _named(used, _measure(used, folder))
        return
    for engine in options.engines:
        notes = Notes(engine=engine, finished=options.finished, ready=options.ready)
        data = DataSet.make(options.keep or folder / engine, notes)
        yield from _named(data, _fill_and_measure(data, folder, is_kept=options.keep is not None))


def _named(data: DataSet, lines: Iterator[str]) -> Iterator[str]:
    try:
        for line in lines:
            yield f"{data.notes.engine}: {line}"
    finally:
        data.close()


def _fill_and_measure(data: DataSet, folder: Path, *, is_kept: bool) -> Iterator[str]:
    yield from _fill(data)
    if is_kept:
        data.save()
        yield f"kept in {data.folder}"
    yield from _measure(data, folder)


# ----------------------------------------------------------------------------------------- filling


def _fill(data: DataSet) -> Iterator[str]:
    notes = data.notes
    tenth, whole = (Backlog.of(notes.finished // by, notes.ready // by) for by in (10, 1))
    with _counted(data) as instance:
        began = time.monotonic()
        fill_rare(instance.engine)
        fill(instance.engine, tenth, _progress("a tenth"))
        record_runs(instance.engine, 100)
        data.store.settle(instance.engine)
        notes.work_at_a_tenth = instance.count_all()
        notes.middle_ms = _halfway(instance.engine, whole.minus(tenth))
        data.store.settle(instance.engine)
        taken_s = time.monotonic() - began
    yield (
        f"{whole.total:,} jobs in {taken_s:.0f} s ({whole.total / taken_s:,.0f} a second): "
        f"{', '.join(f'{number:,} {state}' for state, number in whole._asdict().items())}; "
        f"{data.store.stored_bytes() / 1e9:.1f} GB of files, "
        f"{data.store.memory_bytes() / 1e9:.1f} GB of server"
    )


def _halfway(engine: Engine, rest: Backlog) -> int:
    """Add the rest of the jobs; return when half of the finished ones had ended."""
    half = Backlog(rest.succeeded // 2, *(0 for _ in rest[1:]))
    fill(engine, half, _progress("first half"))
    middle_ms = time.time_ns() // 1_000_000
    fill(engine, rest.minus(half), _progress("second half"))
    return middle_ms


def _progress(name: str) -> Callable[[str, int, int], None]:
    began = time.monotonic()

    def show(text: str, made: int, total: int) -> None:
        left_s = (time.monotonic() - began) / made * (total - made)
        print(f"    {name}: {text}, {left_s:.0f} s left", file=sys.stderr, flush=True)

    return show


# ---------------------------------------------------------------------------------------- counting


class _Instance:
    """The API on a data set in this process, and the work of the engine."""

    def __init__(self, data: DataSet, app: Windlass, client: Client, worked: Worked) -> None:
        self.engine = app.engine
        self._data = data
        self._client = client
        self._worked = worked

    def count_all(self) -> dict[str, int]:
        """The work of each request, while some jobs run."""
        session = new_session("counted", 1)
        start_some(self.engine, session)
        requests = _requests(self._ask, self._data)
        work = {name: self._count(path) for name, path in requests.items()}
        self.engine.close(session, (), "counted")
        return work

    def _count(self, path: str) -> int:
        return count_work(self._worked, lambda: self._ask(path), tries=5)

    def _ask(self, path: str) -> Any:
        answer = self._client.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        return answer.json() if path.startswith("/v1/") else None


@contextmanager
def _counted(data: DataSet) -> Iterator[_Instance]:
    with data.store.counting() as worked:
        loop = LoopThread()
        try:
            with Windlass(data.url, lease=LEASE) as app:
                add_tasks(app)
                api = create_api(app, ApiOptions(rate=1e6, burst=1e6))
                yield _Instance(data, app, Client(api, loop), worked)
        finally:
            loop.close()


def _requests(ask: Ask, data: DataSet) -> dict[str, str]:
    """The requests of all pages, and one in the middle of the finished jobs."""
    requests = page_requests(ask)
    if data.notes.middle_ms:
        cursor = _middle(data.notes.engine, data.notes.middle_ms + LATER_MS)
        path = f"/v1/jobs?limit=50&state=succeeded&cursor={cursor}"
        requests["jobs: succeeded, in the middle"] = path
    return requests


def _middle(engine: str, keep_until_ms: int) -> str:
    """The cursor before all jobs whose results are stored until this instant."""
    if engine == "redis":
        return to_cursor(JobIndex.SUCCEEDED, b"%d " % keep_until_ms)
    return to_cursor(JobIndex.SUCCEEDED, msgspec.json.encode((keep_until_ms, 0)))


# ----------------------------------------------------------------------------------------- timing


class ResponseTimes(NamedTuple):
    """How long a request took, in milliseconds."""

    p50: float
    p95: float
    longest: float

    @classmethod
    def of(cls, taken_ms: list[float]) -> ResponseTimes:
        cuts = statistics.quantiles(taken_ms, n=20)
        return cls(statistics.median(taken_ms), cuts[18], max(taken_ms))


def _measure(data: DataSet, folder: Path) -> Iterator[str]:
    with _counted(data) as instance:
        work = instance.count_all()
        session = new_session("running", 1)
        start_some(instance.engine, session)
        times = _time_all(data, folder / f"{data.notes.engine}.log")
        instance.engine.close(session, (), "measured")
    tenth = data.notes.work_at_a_tenth
    unit = data.store.unit
    yield f"{'request':44} {'p50':>7} {'p95':>7} {'max':>7} ms {unit:>9} at a tenth"
    for name, own in times.items():
        row = f"{name:44} {own.p50:7.1f} {own.p95:7.1f} {own.longest:7.1f}"
        yield f"{row} {work[name]:12,} {tenth.get(name, 0):10,}{_verdict(name, own, work, tenth)}"
    assert not [name for name, own in times.items() if own.p95 >= MOST_MS], "p95 is too long"
    assert not [name for name in tenth if _has_grown(name, work, tenth)], "the work has grown"


def _verdict(
    name: str, own: ResponseTimes, work: Mapping[str, int], tenth: Mapping[str, int]
) -> str:
    slow = " SLOW" if own.p95 >= MOST_MS else ""
    return slow + (" GROWN" if _has_grown(name, work, tenth) else "")


def _has_grown(name: str, work: Mapping[str, int], tenth: Mapping[str, int]) -> bool:
    return name in tenth and work[name] > (1 + MOST_GROWTH) * tenth[name]


def _time_all(data: DataSet, log: Path) -> dict[str, ResponseTimes]:
    server = ServerProcess(APP, log, "--url", data.url, "--rate-limit", "100000")
    try:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

        def ask(path: str) -> Any:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, f"{path}: {body.decode()}"
            return json.loads(body) if path.startswith("/v1/") else None

        requests = _requests(ask, data)
        for _ in range(5):
            ask("/status")  # opens connections of the engine
        return {name: _time(ask, path) for name, path in requests.items()}
    finally:
        server.kill()


def _time(ask: Ask, path: str) -> ResponseTimes:
    taken_ms = []
    for _ in range(TIMES):
        began = time.perf_counter()
        ask(path)
        taken_ms.append((time.perf_counter() - began) * 1000)
    return ResponseTimes.of(taken_ms)
