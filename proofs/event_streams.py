"""50 event streams of the dashboard: claims take as long as without any, on each engine.

1. `windlass serve` has 50 streams, each with an access token of its own, in rounds: a round without
   streams is followed by one with them, so that a busy minute of the machine meets both.
2. In each round one session ends a job and claims the next, 2,000 times, one every 2 ms, so that
   every round lasts for several snapshots. There are 20,000 claims of each kind; p50 and p99 with
   streams must be within 10 % of those without.
3. The processor time of the server is shown, and that events were sent while claims were made.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from tests.contract.variants import fresh_url
from tests.dashboard.backlog import Backlog, fill
from tests.http.server_process import ServerProcess
from tests.redis_server import RedisServer
from tests.worker.yard import PROJECT
from windlass import Windlass
from windlass.access_tokens import Role
from windlass.core.ids import new_nonce, new_session
from windlass.engine.contract import Claim, Engine, Outcome, Plan, Succeeded

APP: Final = "tests.http.shop_app:app"
STREAMS: Final = 50
ROUNDS: Final = 10
CLAIMS: Final = 2_000
#: The time from one claim to the next, in seconds.
APART_S: Final = 0.002
#: The least number of events of a stream in a round, after the one with which it begins.
LEAST_EVENTS: Final = 2
MOST: Final = 1.1
#: Ready jobs beyond those that are claimed, and jobs of other states.
BACKLOG: Final = Backlog.of(finished=20_000, ready=10_000)


class ClaimTimes(NamedTuple):
    """The claims of all rounds with streams, or of all rounds without."""

    times_ms: list[float]
    cpu: list[float]  # of the server, as a share of a core, by round

    @property
    def p50(self) -> float:
        return statistics.median(self.times_ms)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.times_ms, n=100)[98]


def prove(folder: Path) -> Iterator[str]:
    sqlite = f"sqlite:///{folder}/jobs.db?durability=normal"
    yield from (f"sqlite: {line}" for line in _prove_on(sqlite, folder / "sqlite"))
    redis = RedisServer("--appendfsync", "everysec")
    try:
        yield from (f"redis: {line}" for line in _prove_on(redis.url(), folder / "redis"))
    finally:
        redis.end()
    postgres = fresh_url("postgres", folder)
    yield from (f"postgres: {line}" for line in _prove_on(postgres, folder / "postgres"))


def _prove_on(url: str, folder: Path) -> Iterator[str]:
    folder.mkdir()
    with Windlass(url) as app:
        fill(app.engine, BACKLOG._replace(ready=BACKLOG.ready + 2 * ROUNDS * CLAIMS))
        texts = [_new_token(app, number) for number in range(STREAMS)]
        (folder / "tokens").write_text("\n".join(texts))
        server = ServerProcess(APP, folder / "log", "--url", url)
        try:
            without, with_streams, events = _take_turns(app.engine, server, folder / "tokens")
        finally:
            server.kill()
    yield from _judge(without, with_streams, events)


def _new_token(app: Windlass, number: int) -> str:
    _, text = app.access_tokens.create(name=f"viewer-{number}", role=Role.OPERATOR)
    return text


def _take_turns(
    engine: Engine, server: ServerProcess, tokens: Path
) -> tuple[ClaimTimes, ClaimTimes, int]:
    without, with_streams, events = ClaimTimes([], []), ClaimTimes([], []), 0
    worker, viewers = _Worker(engine), _Viewers(server.port, tokens)
    try:
        worker.work(CLAIMS // 10)  # prepares
        for _ in range(ROUNDS):
            _take(without, worker, server)
            opened = viewers.tell("open")
            _take(with_streams, worker, server)
            events += viewers.tell("close") - opened
    finally:
        viewers.end()
    return without, with_streams, events


def _take(times: ClaimTimes, worker: _Worker, server: ServerProcess) -> None:
    process = psutil.Process(server.pid)
    before, began = sum(process.cpu_times()[:2]), time.perf_counter()
    times.times_ms.extend(worker.work(CLAIMS))
    spent = sum(process.cpu_times()[:2]) - before
    times.cpu.append(spent / (time.perf_counter() - began))


class _Worker:
    """A session that ends one job and claims the next."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session = new_session("proof", 1)
        self._nonces = map(new_nonce, count(1))
        self._ends: Sequence[Outcome] = ()

    def work(self, number: int) -> list[float]:
        """How long each call took, in milliseconds."""
        times_ms = []
        for _ in range(number):
            began = time.perf_counter()
            turn = self._engine.turn(self._session, self._ends, next(self._nonces), Plan(), 1)
            times_ms.append((time.perf_counter() - began) * 1000)
            (claim,) = turn.batch.claims
            self._ends = [_end(claim)]
            time.sleep(max(0.0, began + APART_S - time.perf_counter()))
        return times_ms


def _end(claim: Claim) -> Outcome:
    return Succeeded(id=claim.id, token=claim.token, result=b"1", result_ttl_ms=3_600_000)


class _Viewers:
    """The process with the streams."""

    def __init__(self, port: int, tokens: Path) -> None:
        command = [sys.executable, "-m", "proofs.stream_viewers", str(port), str(tokens)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=PROJECT)

    def tell(self, command: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the viewers have ended: see the error above"
        return int(answer)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def _judge(without: ClaimTimes, with_streams: ClaimTimes, events: int) -> Iterator[str]:
    for name, kind in (("without streams", without), (f"with {STREAMS} streams", with_streams)):
        yield (
            f"{len(kind.times_ms):,} claims {name}: p50 {kind.p50:.3f} ms, p99 {kind.p99:.3f} ms; "
            f"the server takes {statistics.mean(kind.cpu) * 100:.1f} % of a core"
        )
    p50, p99 = with_streams.p50 / without.p50, with_streams.p99 / without.p99
    yield f"with by without: p50 {p50:.3f}, p99 {p99:.3f}; {events:,} events were read"
    assert events >= LEAST_EVENTS * STREAMS * ROUNDS, "too few events to tell"
    assert p50 <= MOST, "p50"
    assert p99 <= MOST, "p99"
