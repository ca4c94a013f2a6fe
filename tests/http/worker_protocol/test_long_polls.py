"""Long polls: waiting for a job without a thread, and without lost wake-ups."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest

from tests.http.client import Client, LoopThread
from tests.http.conftest import Caller
from tests.http.worker_protocol.conftest import ENGINES, Instance
from tests.http.worker_protocol.remote import Remote, outcome, problem_of
from tests.worker.yard import until
from windlass import State, Windlass
from windlass.engine.contract import Engine, Turn, Waiter
from windlass.errors import EngineUnavailable
from windlass.http import ApiOptions, WindlassApi
from windlass.http.worker_protocol import long_polls
from windlass.http.worker_protocol.claim_service import ClaimService
from windlass.http.worker_protocol.long_polls import LongPolls

#: Much less than the time of a poll, and much more than a wake-up takes.
SOON_S = 10.0


@pytest.fixture
def polls(api: WindlassApi, loop: LoopThread) -> LongPolls:
    async def find() -> LongPolls:
        return api.gateway.part(ClaimService).polls

    return loop.run(find())


@pytest.fixture
def no_wake_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the test wakes polls: neither the engine nor the clock does."""
    monkeypatch.setattr(LongPolls, "take_waiters", lambda _self: [])
    monkeypatch.setattr(long_polls, "FALLBACK_S", 1_000.0)


def await_polls(polls: LongPolls, number: int) -> None:
    """Wait until this many polls wait for a wake-up."""
    until(lambda: _number_waiting(polls) == number, f"{number} waiting polls")


def _number_waiting(polls: LongPolls) -> int:
    return len({poll for group in list(polls._groups.values()) for poll in list(group.waiting)})


@pytest.mark.parametrize("engine_name", [*ENGINES, "sqlite-memory"])
def test_a_job_ends_a_poll(app: Windlass, remote: Remote, polls: LongPolls) -> None:
    poll = remote.poll()
    await_polls(polls, 1)
    began = time.monotonic()
    job = app.tasks["add"].enqueue(1)
    (claimed,) = remote.polled(poll)
    assert claimed["id"] == job.id
    assert time.monotonic() - began < SOON_S
    assert polls.number == 0


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_due_job_ends_a_poll(app: Windlass, remote: Remote, polls: LongPolls) -> None:
    poll = remote.poll()
    await_polls(polls, 1)
    job = app.tasks["add"].using(run_after="200ms").enqueue(1)
    assert [claimed["id"] for claimed in remote.polled(poll)] == [job.id]


def test_a_poll_ends_empty_after_its_time(remote: Remote) -> None:
    began = time.monotonic()
    assert remote.claim(wait_s=0.2) == []
    assert 0.2 <= time.monotonic() - began < SOON_S


@pytest.mark.usefixtures("no_wake_ups")
def test_a_poll_returns_the_jobs_that_a_repeat_has_claimed(
    app: Windlass, remote: Remote, polls: LongPolls, instance: Instance
) -> None:
    """Repeat a waiting claim through another instance, and use the answer of the first one."""
    repeat = remote.through(instance())
    poll = remote.client.start("POST", "/v1/claims", json=remote.ask(1, wait_s=1))
    await_polls(polls, 1)
    job = app.tasks["add"].enqueue(1)
    assert [claimed["id"] for claimed in repeat.claim(1)] == [job.id]
    assert [claimed["id"] for claimed in remote.polled(poll)] == [job.id]


@pytest.mark.usefixtures("no_wake_ups")
def test_a_revoked_token_claims_nothing_at_the_time_out(
    app: Windlass, caller: Caller, polls: LongPolls
) -> None:
    remote = Remote.begin(caller("worker"))
    poll = remote.client.start("POST", "/v1/claims", json=remote.ask(1, wait_s=1))
    await_polls(polls, 1)
    app.access_tokens.revoke("worker")
    app.tasks["add"].enqueue(1)
    until(lambda: remote.client.post("/v1/claims", {}).status_code == 401, "the end of the token")
    assert problem_of(remote.client.finish(poll)) == (401, "unauthenticated")
    assert app.stats().jobs[State.READY] == 1


def test_a_ready_job_is_not_waited_for(app: Windlass, remote: Remote, polls: LongPolls) -> None:
    app.tasks["add"].enqueue(1)
    assert len(remote.polled(remote.poll())) == 1
    assert polls.number == 0


def test_a_turn_reports_at_once_and_waits(app: Windlass, remote: Remote, polls: LongPolls) -> None:
    job = app.tasks["add"].enqueue(1)
    body = remote.ask(
        2, outcomes=[outcome(remote.take(), "succeeded", result=1)], wait_s=20, limit=1
    )
    turn = remote.client.start("POST", "/v1/turn", json=body)
    assert job.result(timeout=SOON_S) == 1
    await_polls(polls, 1)
    later = app.tasks["add"].enqueue(2)
    answer = remote.client.finish(turn).json()
    assert answer["verdicts"] == ["ok"]
    assert [claimed["id"] for claimed in answer["claims"]] == [later.id]


@pytest.mark.parametrize("engine_name", ENGINES)
def test_jobs_that_come_together_reach_as_many_polls(
    app: Windlass, client: Client, polls: LongPolls
) -> None:
    remotes = [Remote.begin(client) for _ in range(12)]
    waiting = [(remote, remote.poll()) for remote in remotes]
    await_polls(polls, 12)
    jobs = app.enqueue_many(app.tasks["add"].bind(number) for number in range(12))
    claimed = [remote.polled(poll) for remote, poll in waiting]
    assert sorted(job["id"] for one in claimed for job in one) == sorted(job.id for job in jobs)
    assert {len(one) for one in claimed} == {1}


def test_sessions_with_other_plans_wait_side_by_side(
    app: Windlass, client: Client, polls: LongPolls
) -> None:
    mail, other = Remote.begin(client, queues=["mail"]), Remote.begin(client, queues=["default"])
    polling = [(mail, mail.poll()), (other, other.poll())]
    await_polls(polls, 2)
    sent = app.tasks["once"].enqueue("a@b.c")
    assert [job["id"] for job in mail.polled(polling[0][1])] == [sent.id]
    added = app.tasks["add"].enqueue(1)
    assert [job["id"] for job in other.polled(polling[1][1])] == [added.id]


def test_a_suspect_ends_the_poll_of_an_idle_worker(
    app: Windlass, client: Client, polls: LongPolls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_polls, "FALLBACK_S", 1_000.0)
    job = app.tasks["add"].enqueue(1)
    first, second, idle = (Remote.begin(client) for _ in range(3))
    first.take()
    app.engine.lose(first.session, "its worker died")
    second.take()
    poll = idle.poll()
    await_polls(polls, 1)
    app.engine.lose(second.session, "its worker died")
    (claimed,) = idle.polled(poll)
    assert (claimed["id"], claimed["alone"]) == (job.id, True)


def groups_of(polls: LongPolls) -> list[Any]:
    return list(polls._groups.values())


@pytest.mark.usefixtures("no_wake_ups")
def test_a_full_batch_wakes_the_next_poll(
    app: Windlass, client: Client, loop: LoopThread, polls: LongPolls
) -> None:
    remotes = [Remote.begin(client, slots=2) for _ in range(3)]
    waiting = []
    for remote in remotes:  # in turn, so that they wait in this order
        waiting.append((remote, remote.poll()))
        await_polls(polls, len(waiting))
    jobs = app.enqueue_many(app.tasks["add"].bind(number) for number in range(2))
    (group,) = groups_of(polls)
    loop.loop.call_soon_threadsafe(polls.wake, group.waiter.session)
    claimed = [remote.polled(poll)[0]["id"] for remote, poll in waiting[:2]]
    assert sorted(claimed) == sorted(job.id for job in jobs)
    until(lambda: group.should_wait, "the end of the claim of the third poll")
    assert group.backoff._failures == 0, "the third poll found nothing, which was to be expected"
    later = app.tasks["add"].enqueue(1)
    loop.loop.call_soon_threadsafe(polls.wake, group.waiter.session)
    assert [job["id"] for job in remotes[2].polled(waiting[2][1])] == [later.id]


def test_a_woken_group_is_not_woken_again_before_its_look(
    app: Windlass, remote: Remote, polls: LongPolls, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = remote.poll()
    await_polls(polls, 1)
    wake_all = polls.wake_all
    woken: list[str] = []
    is_woken = threading.Event()

    def note(sessions: list[str]) -> None:
        """The event loop is late."""
        woken.extend(sessions)
        is_woken.set()

    monkeypatch.setattr(polls, "wake_all", note)
    job = app.tasks["add"].enqueue(1)
    assert is_woken.wait(SOON_S)
    assert polls._thread is not None
    waits = threading.Event()
    take_waiters = polls.take_waiters

    def take() -> list[Waiter]:
        waits.set()
        return take_waiters()

    monkeypatch.setattr(polls, "take_waiters", take)
    polls._thread.nudge()
    assert waits.wait(SOON_S), "the next call of the engine"
    assert len(woken) == 1
    remote.client._loop.loop.call_soon_threadsafe(wake_all, woken)
    assert [claimed["id"] for claimed in remote.polled(poll)] == [job.id]


# --------------------------------------------------------------------------------- clients that go


class RawRequest:
    """A request whose client can leave. The client library waits for the whole answer."""

    def __init__(self, api: WindlassApi, loop: LoopThread, path: str, body: Any) -> None:
        self._loop = loop
        content = json.dumps(body).encode()
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", b"application/json"),
                (b"content-length", str(len(content)).encode()),
            ],
            "client": ("127.0.0.1", 50_002),
            "server": ("localhost", 80),
        }

        async def begin() -> asyncio.Task[None]:
            self.has_left = asyncio.Event()
            self._parts: list[dict[str, Any]] = [
                {"type": "http.request", "body": content, "more_body": False}
            ]
            return asyncio.ensure_future(api(self._scope, self._receive, self._send))

        self._running = loop.run(begin())

    async def _receive(self) -> dict[str, Any]:
        if self._parts:
            return self._parts.pop()
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None: ...

    def leave(self) -> None:
        async def end() -> None:
            self.has_left.set()
            await asyncio.wait_for(self._running, SOON_S)

        self._loop.run(end())


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_client_that_left_claims_nothing(
    app: Windlass, api: WindlassApi, loop: LoopThread, remote: Remote, polls: LongPolls
) -> None:
    request = RawRequest(api, loop, "/v1/claims", remote.ask(wait_s=20))
    await_polls(polls, 1)
    request.leave()
    assert polls.number == 0
    job = app.tasks["add"].enqueue(1)
    (record,) = app.engine.get([job.id])
    assert record is not None
    assert record.state is State.READY
    assert Remote.begin(remote.client).take()["id"] == job.id


@pytest.mark.usefixtures("no_wake_ups")
def test_the_wake_up_of_a_client_that_left_is_for_the_next(
    app: Windlass, api: WindlassApi, loop: LoopThread, client: Client, polls: LongPolls
) -> None:
    leaving, staying = Remote.begin(client, slots=2), Remote.begin(client, slots=2)
    request = RawRequest(api, loop, "/v1/claims", leaving.ask(wait_s=20))
    await_polls(polls, 1)
    poll = staying.poll()
    await_polls(polls, 2)
    job = app.tasks["add"].enqueue(1)

    async def leave_and_wake() -> None:
        """Both happen before the request of the client continues."""
        (group,) = groups_of(polls)
        request.has_left.set()
        polls.wake(group.waiter.session)

    loop.run(leave_and_wake())
    assert [claimed["id"] for claimed in staying.polled(poll)] == [job.id]
    (record,) = app.engine.get([job.id])
    assert record is not None
    assert record.session == staying.session


def test_a_session_that_ended_passes_its_wake_up_on(
    app: Windlass, client: Client, polls: LongPolls
) -> None:
    ended, staying = Remote.begin(client), Remote.begin(client)
    first = ended.poll()
    await_polls(polls, 1)
    second = staying.poll()
    await_polls(polls, 2)
    assert ended.end().status_code == 204
    job = app.tasks["add"].enqueue(1)
    assert problem_of(client.finish(first)) == (410, "session-gone")
    assert [claimed["id"] for claimed in staying.polled(second)] == [job.id]


def test_a_revoked_token_claims_nothing(app: Windlass, caller: Caller, polls: LongPolls) -> None:
    remote = Remote.begin(caller("worker"))
    poll = remote.poll()
    await_polls(polls, 1)
    app.access_tokens.revoke("worker")
    until(lambda: remote.client.post("/v1/claims", {}).status_code == 401, "the end of the token")
    app.tasks["add"].enqueue(1)
    assert problem_of(remote.client.finish(poll)) == (401, "unauthenticated")
    assert app.stats().jobs[State.READY] == 1


# ----------------------------------------------------------------------------------------- limits


class TestLimits:
    @pytest.fixture
    def options(self) -> ApiOptions:
        return ApiOptions(max_waiters=20)

    def test_more_polls_are_refused(self, app: Windlass, client: Client, polls: LongPolls) -> None:
        remotes = [Remote.begin(client) for _ in range(20)]
        waiting = [(remote, remote.poll()) for remote in remotes]
        await_polls(polls, 20)
        late = Remote.begin(client)
        answer = client.post("/v1/claims", late.ask(wait_s=1))
        assert problem_of(answer) == (503, "overloaded")
        assert answer.headers["retry-after"] == "1"
        assert late.claim() == [], "without a wait"
        job = app.tasks["add"].using(requires=["gpu"]).enqueue(1)
        done = Remote.begin(client, labels=["gpu"])
        body = done.ask(2, outcomes=[outcome(done.take(), "succeeded", result=1)], wait_s=20)
        answer = client.post("/v1/turn", body)
        assert answer.json() == {"verdicts": ["ok"], "claims": [], "next_due_s": None}
        assert job.result(timeout=SOON_S) == 1
        app.enqueue_many(app.tasks["add"].bind(number) for number in range(20))
        for remote, poll in waiting:
            assert len(remote.polled(poll)) == 1
        assert late.claim(wait_s=0.1) == [], "there is room again"


@pytest.mark.slow
@pytest.mark.parametrize("engine_name", ["sqlite-file-normal", "redis", "postgres"])
def test_a_thousand_polls_need_no_threads(
    app: Windlass, client: Client, polls: LongPolls, loop: LoopThread
) -> None:
    remotes = [Remote.begin(client) for _ in range(40)]
    before = threading.active_count()
    waiting = []
    for number in range(1_000):
        remote = remotes[number % 40]
        waiting.append((remote, remote.poll()))
        if number % 100 == 99:
            await_polls(polls, number + 1)
    assert threading.active_count() <= before + 10
    answer = client.post("/v1/claims", remotes[0].ask(wait_s=1))
    assert problem_of(answer) == (503, "overloaded")
    jobs = app.enqueue_many(app.tasks["add"].bind(number) for number in range(1_000))
    found = [job["id"] for remote, poll in waiting for job in remote.polled(poll)]
    assert sorted(found) == sorted(job.id for job in jobs)


# ----------------------------------------------------------------------------- drain and outages


def test_a_drain_ends_polls_and_refuses_new_ones(
    api: WindlassApi, loop: LoopThread, client: Client, app: Windlass, polls: LongPolls
) -> None:
    remotes = [Remote.begin(client) for _ in range(3)]
    job = app.tasks["add"].enqueue(1)
    claimed = remotes[0].take()
    waiting = [(remote, remote.poll()) for remote in remotes]
    await_polls(polls, 3)
    began = time.monotonic()
    loop.loop.call_soon_threadsafe(api.drain)
    assert [remote.polled(poll) for remote, poll in waiting] == [[], [], []]
    assert time.monotonic() - began < SOON_S
    for path in ("/v1/claims", "/v1/turn"):
        for wait_s in (0, 1):
            answer = client.post(path, remotes[0].ask(wait_s=wait_s))
            assert problem_of(answer) == (503, "draining")
            assert answer.headers["retry-after"]
    assert remotes[0].finish(outcome(claimed, "succeeded", result=1)) == ["ok"]
    assert job.result(timeout=5) == 1
    assert remotes[0].end().status_code == 204


class Unreachable:
    """An engine whose next claims fail."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.failures = 0  # how many
        self.turns = 0

    def turn(self, *args: Any, **options: Any) -> Turn:
        self.turns += 1
        if self.failures:
            self.failures -= 1
            raise EngineUnavailable("the engine is away")
        return self._engine.turn(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@pytest.fixture
def faulty(app: Windlass) -> Unreachable:
    app.engine.migrate()
    wrapped: list[Unreachable] = []

    def wrap(engine: Engine) -> Engine:
        wrapped.append(Unreachable(engine))
        return wrapped[0]  # it passes all other verbs on

    app.wrap_engine(wrap)
    return wrapped[0]


def test_an_outage_is_a_problem_and_the_same_nonce_goes_on(
    app: Windlass, faulty: Unreachable, remote: Remote
) -> None:
    job = app.tasks["add"].enqueue(1)
    faulty.failures = 2
    for wait_s in (0, 1):
        answer = remote.client.post("/v1/claims", remote.ask(wait_s=wait_s))
        assert problem_of(answer) == (503, "engine-away")
        assert answer.headers["retry-after"]
    assert [claimed["id"] for claimed in remote.claim(wait_s=1)] == [job.id]


@pytest.mark.usefixtures("no_wake_ups")
def test_an_outage_after_a_wake_up_ends_one_poll(
    app: Windlass, faulty: Unreachable, client: Client, polls: LongPolls, loop: LoopThread
) -> None:
    remotes = [Remote.begin(client, slots=2) for _ in range(2)]
    waiting = []
    for number, remote in enumerate(remotes):
        waiting.append((remote, remote.poll()))
        await_polls(polls, number + 1)
    faulty.failures = 2
    job = app.tasks["add"].enqueue(1)
    (group,) = groups_of(polls)
    loop.loop.call_soon_threadsafe(polls.wake, group.waiter.session)
    assert problem_of(client.finish(waiting[0][1])) == (503, "engine-away")
    until(lambda: group.should_wait, "the end of the back-off")
    faulty.failures = 0
    loop.loop.call_soon_threadsafe(polls.wake, group.waiter.session)
    assert [claimed["id"] for claimed in remotes[1].polled(waiting[1][1])] == [job.id]


def test_claims_that_get_nothing_become_rare(
    app: Windlass,
    faulty: Unreachable,
    remote: Remote,
    polls: LongPolls,
    loop: LoopThread,
) -> None:
    poll = remote.poll()
    await_polls(polls, 1)
    before = faulty.turns

    async def wake_for(seconds: float) -> None:
        """Wake groups as soon as they wait, as an engine does that has jobs of other tasks."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for group in list(polls._groups.values()):
                polls.wake(group.waiter.session)
            await asyncio.sleep(0.001)

    loop.run(wake_for(0.4))
    assert faulty.turns - before < 25, "two groups, each with a longer back-off after every claim"
    job = app.tasks["add"].enqueue(1)
    assert [claimed["id"] for claimed in remote.polled(poll)] == [job.id]


def test_a_poll_claims_now_and_then_without_a_wake_up(
    app: Windlass, remote: Remote, polls: LongPolls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_polls, "FALLBACK_S", 0.1)
    monkeypatch.setattr(LongPolls, "take_waiters", lambda _self: [])  # no wake-ups at all
    poll = remote.poll()
    await_polls(polls, 1)
    job = app.tasks["add"].enqueue(1)
    assert [claimed["id"] for claimed in remote.polled(poll)] == [job.id]


def test_two_instances_wait_side_by_side(
    app: Windlass, client: Client, instance: Instance, polls: LongPolls
) -> None:
    here, there = Remote.begin(client), Remote.begin(instance())
    waiting = [(here, here.poll()), (there, there.poll())]
    await_polls(polls, 1)
    jobs = app.enqueue_many(app.tasks["add"].bind(number) for number in range(2))
    claimed = [remote.polled(poll)[0]["id"] for remote, poll in waiting]
    assert sorted(claimed) == sorted(job.id for job in jobs)
