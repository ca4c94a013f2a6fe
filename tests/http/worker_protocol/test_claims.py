"""Claims of remote workers: which jobs they get, and in which form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import msgspec
import pytest

from tests.http.client import Client, LoopThread
from tests.http.conftest import Caller
from tests.http.worker_protocol.conftest import ENGINES, Instance
from tests.http.worker_protocol.remote import Remote, add_remote_tasks, outcome, problem_of
from windlass import FailureText, Reason, State, Windlass
from windlass.core.states import Hold
from windlass.engine.contract import JobRecord, NewJob, Plan, Unroutable
from windlass.http import create_api
from windlass.http.worker_protocol import adoption
from windlass.testing.contract.world import claim_jobs

LARGE = 2**63 + 1
SECRET = "a secret of at least 32 characters"


def record_of(app: Windlass, id: str) -> JobRecord:
    (record,) = app.engine.get([id])
    assert record is not None
    return record


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_job_comes_as_it_was_enqueued(app: Windlass, remote: Remote) -> None:
    given = {"nested": [LARGE, 0.1, None, "\u2603"]}
    job = app.task_named("report").using(headers={"tenant": "a"}, priority=7).enqueue(1, **given)
    remote = Remote.begin(remote.client, tasks=["report"])
    claimed = remote.take()
    assert claimed["id"] == job.id
    assert (claimed["task"], claimed["queue"], claimed["priority"]) == ("report", "default", 7)
    assert (claimed["args"], claimed["kwargs"]) == ([1], given)
    assert claimed["headers"] == {"tenant": "a"}
    assert (claimed["attempt"], claimed["max_attempts"], claimed["alone"]) == (1, 5, False)
    assert (claimed["timeout_s"], claimed["deadline"]) == (None, None)
    assert abs(datetime.fromisoformat(claimed["enqueued_at"]).timestamp() - _now()) < 60


def _now() -> float:
    return datetime.now(UTC).timestamp()


def test_the_options_of_the_task_count(app: Windlass, remote: Remote) -> None:
    app.task_named("add").enqueue(1)
    claimed = remote.take()
    assert (claimed["max_attempts"], claimed["timeout_s"]) == (3, 30.0)
    left = datetime.fromisoformat(claimed["deadline"]).timestamp() - _now()
    assert 0 < left <= 30


def test_the_options_of_the_caller_count_more(app: Windlass, remote: Remote) -> None:
    app.tasks["add"].using(timeout=timedelta(seconds=5), result_ttl="1m").enqueue(1)
    assert remote.take()["timeout_s"] == 5.0


@pytest.mark.parametrize("engine_name", ENGINES)
def test_only_jobs_of_the_tasks_of_the_session(app: Windlass, client: Client) -> None:
    other = app.task_named("unknown.task").enqueue()
    mine = app.task_named("add").enqueue(1)
    remote = Remote.begin(client, tasks=["add"])
    assert [job["id"] for job in remote.claim(limit=10)] == [mine.id]
    untouched = record_of(app, other.id)
    assert (untouched.state, untouched.hold, untouched.counters.strays) == (
        State.READY,
        Hold.NONE,
        0,
    )


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_session_adopts_jobs_that_others_hold(app: Windlass, client: Client) -> None:
    assert Remote.begin(client).claim() == []
    job = app.task_named("add").enqueue(1)
    (claim,) = claim_jobs(app.engine, "native.1.a", "n1", Plan(), 1).claims
    app.engine.finish([Unroutable(id=claim.id, token=claim.token)])
    assert record_of(app, job.id).hold is Hold.UNROUTABLE
    assert Remote.begin(client).take()["id"] == job.id


def test_a_caller_for_some_queues_adopts_nothing(
    app: Windlass, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held jobs are adopted in all queues: also in those that the caller has no access to."""
    job = app.task_named("add", queue="mail").enqueue(1)
    (claim,) = claim_jobs(app.engine, "native.1.a", "n1", Plan(), 1).claims
    app.engine.finish([Unroutable(id=claim.id, token=claim.token)])
    scoped = Remote.begin(caller("worker", "mail"))
    real = monotonic()
    monkeypatch.setattr(adoption, "monotonic", lambda: real + adoption.LATER_S + 1)
    assert scoped.claim() == []
    assert record_of(app, job.id).hold is Hold.UNROUTABLE
    assert Remote.begin(caller("worker")).take()["id"] == job.id


def test_claims_adopt_now_and_then(
    app: Windlass, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remote.claim() == []
    job = app.task_named("add").enqueue(1)
    (claim,) = claim_jobs(app.engine, "native.1.a", "n1", Plan(), 1).claims
    app.engine.finish([Unroutable(id=claim.id, token=claim.token)])
    assert remote.claim() == [], "an adoption was made a moment ago"
    real = monotonic()
    monkeypatch.setattr(adoption, "monotonic", lambda: real + adoption.LATER_S + 1)
    assert remote.take()["id"] == job.id


def test_queues_are_served_in_order(app: Windlass, client: Client) -> None:
    low = app.task_named("add").enqueue(1)
    high = app.task_named("add", queue="high").enqueue(1)
    remote = Remote.begin(client, queues=["high", "default"])
    assert [job["id"] for job in remote.claim(limit=2)] == [high.id, low.id]


def test_labels_are_needed(app: Windlass, client: Client, remote: Remote) -> None:
    job = app.tasks["add"].using(requires=["gpu"]).enqueue(1)
    assert remote.claim() == []
    claimed = Remote.begin(client, labels=["gpu"]).take()
    assert (claimed["id"], claimed["queue"]) == (job.id, "default")


@pytest.mark.parametrize("engine_name", ENGINES)
def test_the_same_number_returns_the_same_jobs(app: Windlass, remote: Remote) -> None:
    for number in range(5):
        app.task_named("add").enqueue(number)
    first = remote.claim(1, limit=2)
    assert _jobs_of(remote.claim(1, limit=2)) == _jobs_of(first)
    later = remote.claim(2, limit=2)
    assert {job["id"] for job in first}.isdisjoint(job["id"] for job in later)
    assert _jobs_of(remote.claim(1, limit=2)) == _jobs_of(first)
    assert len({job["token"] for job in first}) == 1
    assert first[0]["token"] < later[0]["token"]


@pytest.mark.parametrize("engine_name", ENGINES)
def test_the_same_number_with_another_limit_returns_the_same_jobs(
    app: Windlass, remote: Remote
) -> None:
    for number in range(5):
        app.task_named("add").enqueue(number)
    first = remote.claim(1, limit=2)
    for limit in (1, 5):
        again = remote.claim(1, limit=limit)
        assert _jobs_of(again) == _jobs_of(first)
    assert app.stats().jobs[State.READY] == 3


def _jobs_of(claims: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The claimed jobs by id, without their deadlines. A repeat that asks several partitions may
    have another order."""
    return {job["id"]: {**job, "deadline": None} for job in claims}


def test_next_due(app: Windlass, remote: Remote) -> None:
    answer = remote.client.post("/v1/claims", remote.ask())
    assert answer.json() == {"claims": [], "next_due_s": None}
    app.tasks["add"].using(run_after="1h").enqueue(1)
    answer = remote.client.post("/v1/claims", remote.ask())
    assert answer.json()["claims"] == []
    assert 3590 < answer.json()["next_due_s"] <= 3600


def test_an_answer_has_a_limit_of_bytes(app: Windlass, remote: Remote) -> None:
    app.enqueue_many(app.task_named("once").bind("x" * 900_000) for _ in range(10))
    answer = remote.client.post("/v1/claims", remote.ask(limit=100))
    assert 1 <= len(answer.json()["claims"]) < 10
    assert answer.json()["next_due_s"] == 0, "there is more now"


# -------------------------------------------------------------------------------- not handed out


def test_a_job_without_attempts_becomes_a_dead_letter(app: Windlass, client: Client) -> None:
    job = app.task_named("add").enqueue(1)
    for number in range(10):  # as many losses as a job may have
        claimed = Remote.begin(client).claim() or Remote.begin(client, slots=1).claim()
        assert [one["id"] for one in claimed] == [job.id], number
        app.engine.lose(_session_of(app, job.id), "its worker died")
    answer = client.post("/v1/claims", Remote.begin(client).ask())
    assert answer.json()["claims"] == []
    record = record_of(app, job.id)
    assert (record.state, record.reason) == (State.DEAD, Reason.LOST)


def _session_of(app: Windlass, id: str) -> str:
    session = record_of(app, id).session
    assert session is not None
    return session


def test_damaged_bytes_become_a_dead_letter(app: Windlass, remote: Remote) -> None:
    id = app.engine.new_id("add", "default", None)
    app.engine.put([NewJob(id=id, task="add", queue="default", payload=b'{"args":[1')])
    good = app.task_named("add").enqueue(1)
    assert [job["id"] for job in remote.claim(limit=10)] == [good.id]
    record = record_of(app, id)
    assert (record.state, record.reason) == (State.DEAD, Reason.UNDECODABLE)
    assert record.fingerprint == FailureText.unpack(record.failures[-1].error).fingerprint


def _why_held(app: Windlass, id: str) -> str:
    record = record_of(app, id)
    assert (record.state, record.hold) == (State.READY, Hold.UNROUTABLE)
    assert record.counters.attempt == 0, "nothing was charged"
    said: str = msgspec.json.decode(record.held_because or b"{}")["message"]
    return said


def test_a_call_that_cannot_be_read_here_is_left_to_others(
    app: Windlass, engine_url: str, instance: Instance
) -> None:
    with Windlass(engine_url, secret=SECRET, encrypt=True) as sealing:
        add_remote_tasks(sealing)
        sealed = sealing.tasks["add"].enqueue(1)
    remote = Remote.begin(instance())
    answer = remote.client.post("/v1/claims", remote.ask(limit=10))
    assert answer.json()["claims"] == []
    assert "no secret" in _why_held(app, sealed.id)
    assert Remote.begin(remote.client).claim() == [], "it is not adopted again"
    assert record_of(app, sealed.id).counters.strays == 1


def make_client(loop: LoopThread, app: Windlass) -> Client:
    """A caller of an instance with this app."""

    async def make() -> Client:
        return Client(create_api(app), loop)

    return loop.run(make())


def test_a_pickle_is_left_to_native_workers(
    engine_url: str, app: Windlass, instance: Instance, loop: LoopThread
) -> None:
    with Windlass(engine_url, codec="pickle", secret=SECRET) as pickling:
        add_remote_tasks(pickling)
        pickled = pickling.tasks["add"].enqueue(1)
        for client in (instance(), make_client(loop, pickling)):
            remote = Remote.begin(client)
            assert remote.claim(limit=10) == []
            assert "pickle" in _why_held(app, pickled.id)
            app.engine.adopt(["add"])


def test_an_encrypted_call_comes_as_json_and_its_result_is_encrypted(
    engine_url: str, loop: LoopThread
) -> None:
    with Windlass(engine_url, secret=SECRET, encrypt=True) as sealing:
        add_remote_tasks(sealing)
        job = sealing.tasks["add"].enqueue(20, b=22)
    with Windlass(engine_url, secret=SECRET) as app:  # it does not encrypt by itself
        add_remote_tasks(app)
        remote = Remote.begin(make_client(loop, app))
        claimed = remote.take()
        assert (claimed["args"], claimed["kwargs"]) == ([20], {"b": 22})
        assert remote.finish(outcome(claimed, "succeeded", result=[42])) == ["ok"]
        stored = record_of(app, job.id).result or b""
        assert b"42" not in stored
        assert app.packing.unpack_result(stored, "add", job.id) == ("json", b"[42]")


def test_msgpack_comes_as_json(engine_url: str, loop: LoopThread) -> None:
    with Windlass(engine_url, codec="msgpack") as app:
        add_remote_tasks(app)
        remote = Remote.begin(make_client(loop, app))
        job = app.tasks["add"].enqueue(20, b=22)
        claimed = remote.take()
        assert (claimed["args"], claimed["kwargs"]) == ([20], {"b": 22})
        assert remote.finish(outcome(claimed, "succeeded", result=42)) == ["ok"]
        assert job.result(timeout=5) == 42


# ---------------------------------------------------------------------------------- running alone


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_suspect_runs_alone(app: Windlass, client: Client) -> None:
    suspect = app.task_named("add").enqueue(1)
    for _ in range(2):
        Remote.begin(client).take()
        app.engine.lose(_session_of(app, suspect.id), "its worker died")
    busy = Remote.begin(client, slots=2)
    assert busy.claim(limit=1) == [], "one of its slots is in use"
    (claimed,) = busy.claim(limit=2)
    assert (claimed["id"], claimed["alone"]) == (suspect.id, True)
    again = busy.claim(busy.number - 1, limit=2)
    assert [(job["id"], job["token"]) for job in again] == [(suspect.id, claimed["token"])]
    assert busy.finish(outcome(claimed, "succeeded")) == ["ok"]


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "wrong",
    [{"nonce": 0}, {"nonce": 2**32}, {"limit": 0}, {"limit": 101}, {"wait_s": 21}, {"wait_s": -1}],
    ids=str,
)
def test_a_wrong_claim_is_refused(app: Windlass, remote: Remote, wrong: dict[str, Any]) -> None:
    app.task_named("add").enqueue(1)
    assert problem_of(remote.client.post("/v1/claims", remote.ask() | wrong)) == (422, "invalid")
    assert remote.take()["args"] == [1]


def test_an_unknown_session_is_gone(client: Client) -> None:
    unknown = Remote(client, "~unknown.0.0000000000000000")
    assert problem_of(client.post("/v1/claims", unknown.ask())) == (410, "session-gone")
    assert unknown.end().status_code == 204
