"""Every operation on a real server with its reply lost on the way: nothing happens twice, and no
job is held by a claim that no worker knows.

Each scenario of the contract tests runs once without a fault. After every fault, the result must be
the same: the same reply, and the same records, counters and sessions. The faults are between the
engine and the server:

1. the request arrives, and the reply is lost, or cut after some bytes;
2. the request itself is cut after some bytes;
3. the request arrives, and no reply comes until the call has timed out; then the caller repeats it,
   while the first request may still arrive.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.contract.variants import Variant
from tests.proxy import Proxy, Side, Then
from tests.redis_server import documented_rights, shared_server
from windlass.core.ids import new_id
from windlass.core.states import State
from windlass.engine.contract import (
    Batch,
    EngineOptions,
    Filter,
    NewJob,
    Plan,
    PutCode,
    Turn,
    Verdict,
)
from windlass.engine.redis import partitions
from windlass.engine.redis.engine import RedisEngine
from windlass.engine.url import open_engine
from windlass.errors import EngineUnavailable
from windlass.testing.contract.test_lost_replies import SAME, VERBS, a_claim
from windlass.testing.contract.world import OUTCOMES, StandingStill, World, claim_jobs

Call = Callable[[], Any]
Scenario = Callable[[World], tuple[Call, object]]

#: The timeout of a call that has to time out.
GIVEN_UP_S: Final = 0.05


class RepeatableWorld(World):
    """A world with the same ids in every run."""

    def new_id(self, fields: dict[str, Any]) -> str:
        return super().new_id(fields)[:12] + new_id(0)[12:].translate(_ZEROS)


_ZEROS: Final = {ord(digit): "0" for digit in "123456789abcdefghjkmnpqrstvwxyz"}


# ------------------------------------------------------------------------------------ scenarios


def finishing(kind: str) -> Scenario:
    def finish(world: World) -> tuple[Call, object]:
        held = a_claim(world)
        outcome = OUTCOMES[kind](held.id, held.token)
        again = SAME if kind == "progressed" else [Verdict.REPEATED]
        return lambda: world.engine.finish([outcome]), again

    return finish


def finish_many(world: World) -> tuple[Call, object]:
    world.put_many(4)
    world.put_many(4)
    outcomes = [OUTCOMES["succeeded"](held.id, held.token) for held in world.claim().claims]

    def finish() -> list[bool]:  # the replies of some partitions may be lost, and not of others
        return [verdict is not Verdict.STALE for verdict in world.engine.finish(outcomes)]

    return finish, SAME


def claim_from_all(world: World) -> tuple[Call, object]:
    for _ in range(8):
        world.put_many(2)
    return lambda: claim_jobs(world.engine, "worker", "nonce", Plan(), 20), SAME


def put_many(world: World) -> tuple[Call, object]:
    jobs = []
    for _ in range(4):
        jobs += [world.new(), world.new()]
        world.put(run_in_ms=9)
    return lambda: world.engine.put(jobs), SAME


def seeing(see: Callable[[World, list[str]], object]) -> Scenario:
    def scenario(world: World) -> tuple[Call, object]:
        held = a_claim(world)
        ids = [held.id, world.put(), "nowhere"]
        return lambda: see(world, ids), SAME

    return scenario


SCENARIOS: Final[dict[str, Scenario]] = {
    **{verb.__name__: verb for verb in VERBS},
    **{f"finish_{kind}": finishing(kind) for kind in OUTCOMES},
    "finish_many": finish_many,
    "claim_from_all": claim_from_all,
    "put_many": put_many,
    "get": seeing(lambda world, ids: world.engine.get(ids)),
    "find": seeing(lambda world, _: world.engine.find(Filter(state=State.READY), limit=2)),
    "stats": seeing(lambda world, _: world.engine.stats()),
    "sessions": seeing(lambda world, _: world.engine.sessions()),
}


# --------------------------------------------------------------------------------------- faults


@dataclass
class Seen:
    """The result of a scenario without a fault."""

    answer: object
    answer_of_repeat: object
    everything: object
    length: dict[Side, int]  # in bytes


class Laboratory:
    """Run a scenario repeatedly behind a proxy, each time at a fresh place."""

    def __init__(self, scenario: Scenario, partitions: int, folder: Path) -> None:
        self.proxy = Proxy(shared_server().port)
        self._scenario = scenario
        self._name = "redis" if partitions == 1 else f"redis-{partitions}"
        self._partitions = partitions
        self._folder = folder
        self._opened: list[Variant] = []
        self._user = f"lab-{secrets.token_hex(6)}"
        rights = documented_rights(f"{self._user}*")  # to all places with this prefix
        shared_server().add_user(self._user, *rights)
        self._prepare()[0]()  # from here on the server has all scripts
        self.seen = self._see()

    def _prepare(self) -> tuple[Call, object, World]:
        query = f"namespace={self._user}-{len(self._opened)}&partitions={self._partitions}"
        url = f"redis://{self._user}:secret@127.0.0.1:{self.proxy.port}/0?{query}"
        variant = Variant(self._name, self._folder, url)
        self._opened.append(variant)
        world = RepeatableWorld(variant)
        world.engine.migrate()  # its reply has another length each time
        return (*self._scenario(world), world)

    def _see(self) -> Seen:
        call, repeat, world = self._prepare()
        before = dict(self.proxy.passed)
        answer = call()
        length = {side: self.proxy.passed[side] - before[side] for side in Side}
        return Seen(answer, answer if repeat is SAME else repeat, world.everything(), length)

    def lose(self, side: Side, after_bytes: int) -> None:
        """Cut the connection after this many bytes in one direction."""
        call, _, world = self._prepare()
        cuts = self.proxy.cuts
        self.proxy.cut(side, after_bytes, Then.RESET)
        answer = call()
        assert self.proxy.cuts == cuts + 1
        assert answer in (self.seen.answer, self.seen.answer_of_repeat)
        self._compare(world)

    def give_up(self, after_bytes: int) -> None:
        """Delay all replies until the caller times out and repeats the call."""
        call, _, world = self._prepare()
        self.proxy.cut(Side.REPLIES, after_bytes, Then.FREEZE)
        with short_timeout(world), pytest.raises(EngineUnavailable):
            call()
        self.proxy.heal()
        answer = call()
        self._await_late_requests()
        if isinstance(answer, (Batch, Turn)):
            self._see_no_lost_claim(answer, world)
        else:
            assert answer in (self.seen.answer, self.seen.answer_of_repeat)
            self._compare(world)

    def _await_late_requests(self) -> None:
        deadline = time.monotonic() + 5
        while self.proxy.living > 1:  # one is in use
            assert time.monotonic() < deadline, self.proxy.living
            time.sleep(0.001)

    def _compare(self, world: World) -> None:
        self._look_directly(world)
        assert world.everything() == self.seen.everything
        assert world.engine.check() == []

    def _look_directly(self, world: World) -> None:
        """Connect without the proxy, which only costs time from here on."""
        assert isinstance(world.variant, Variant)
        direct = world.variant.url.replace(f":{self.proxy.port}/", f":{shared_server().port}/")
        self._opened.append(Variant(self._name, self._folder, direct))
        world.engine = self._opened[-1].open()
        world.engine.clock_offset_ms = StandingStill(world.now_ms)

    def _see_no_lost_claim(self, answer: Batch | Turn, world: World) -> None:
        """A claim that timed out between partitions may have leased fewer jobs."""
        self._look_directly(world)
        batch, expected = (_batch_of(it) for it in (answer, self.seen.answer))
        running = [record for record in world.records() if record and record.state is State.RUNNING]
        held = {record.id for record in running if record.session == "worker"}
        assert held == {claim.id for claim in batch.claims}
        assert set(batch.claims) <= set(expected.claims)
        assert world.engine.check() == []

    def close(self) -> None:
        for variant in self._opened:
            variant.shutdown()
        self.proxy.close()


def _batch_of(answer: object) -> Batch:
    batch = answer.batch if isinstance(answer, Turn) else answer
    assert isinstance(batch, Batch)
    return batch


@contextmanager
def short_timeout(world: World) -> Iterator[None]:
    """Shorten the timeout of one call: on a busy machine, other calls take longer."""
    engine = world.engine
    assert isinstance(engine, RedisEngine)
    timeout_s, engine._server.timeout_s = engine._server.timeout_s, GIVEN_UP_S
    try:
        yield
    finally:
        engine._server.timeout_s = timeout_s


@pytest.fixture(params=[1, 4], ids=["redis", "redis-4"])
def laboratory(
    request: pytest.FixtureRequest, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Laboratory]:
    monkeypatch.setattr(partitions, "any_of", lambda number: 0)  # every run begins with the first
    laboratory = Laboratory(SCENARIOS[name], request.param, tmp_path)
    yield laboratory
    laboratory.close()


def spread(number: int, length: int) -> list[int]:
    """Choose this many positions in a message, including the first and the last byte."""
    return [at * (length - 1) // max(1, number - 1) for at in range(number)]


def lose_all(laboratory: Laboratory, swallowed: int, cut: int, given_up: int) -> None:
    for _ in range(swallowed):
        laboratory.lose(Side.REPLIES, 0)
    for side in Side:
        for after_bytes in spread(cut, laboratory.seen.length[side]):
            laboratory.lose(side, after_bytes)
    for after_bytes in spread(given_up, laboratory.seen.length[Side.REPLIES]):
        laboratory.give_up(after_bytes)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_lost_reply_changes_nothing(laboratory: Laboratory) -> None:
    lose_all(laboratory, swallowed=1, cut=3, given_up=1)


@pytest.mark.slow
@pytest.mark.timeout(600)  # some scenarios need many calls before the tested one
@pytest.mark.parametrize("name", SCENARIOS)
def test_two_hundred_lost_replies_change_nothing(laboratory: Laboratory) -> None:
    lose_all(laboratory, swallowed=100, cut=45, given_up=10)


@pytest.mark.parametrize("partitions", [1, 4])
def test_the_first_use_of_a_place_with_lost_replies(partitions: int) -> None:
    """One call checks the server, sets it up and puts a job."""
    server = shared_server()
    with Proxy(server.port) as proxy:
        for after_bytes in (0, 1, 1_000, 2_000, 5_000):
            url = server.url(port=proxy.port, partitions=partitions)
            engine = open_engine(url, EngineOptions())
            jobs = [NewJob(id=f"job-{n}", task="t", queue="q", payload=b"") for n in range(8)]
            proxy.cut(Side.REPLIES, after_bytes)
            assert {placed.code for placed in engine.put(jobs)} == {PutCode.CREATED}
            proxy.heal()
            assert engine.stats().totals == {"enqueued": 8}
            assert engine.check() == []
            engine.shutdown()
        assert proxy.cuts >= 4
