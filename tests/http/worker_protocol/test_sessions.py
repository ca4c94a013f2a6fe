"""Sessions of remote workers: begin, heartbeat, end, and who may use them."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Any

import pytest

from tests.http.client import Client, LoopThread
from tests.http.conftest import Caller
from tests.http.worker_protocol.conftest import ENGINES
from tests.http.worker_protocol.remote import Remote, outcome, problem_of
from tests.worker.yard import until
from windlass import State, Windlass
from windlass.core.introduction import RemoteIntroduction
from windlass.engine.contract import SessionCommand
from windlass.http import WindlassApi
from windlass.http.gateway import THREADS
from windlass.http.worker_protocol.remote_sessions import RemoteSession


def test_a_session_is_a_worker(app: Windlass, client: Client) -> None:
    answer = client.post(
        "/v1/sessions",
        {
            "name": "billing.js",
            "tasks": ["add", "add", "once"],
            "queues": ["mail", "default"],
            "labels": ["gpu"],
            "slots": 4,
            "version": "1.2",
            "release": "v1.4.2+5",
        },
    )
    assert answer.status_code == 201
    assert (answer.json()["lease_s"], answer.json()["beat_s"]) == (30.0, 10.0)
    (worker,) = app.workers()
    assert (worker.host, worker.kind, worker.tasks) == ("billing.js", "http", ("add", "once"))
    assert (worker.queues, worker.labels) == (("mail", "default"), ("gpu",))
    assert (worker.slots, worker.version) == (4, "1.2")
    (child,) = worker.children
    assert child.session == answer.json()["session"]
    assert (child.release, worker.release) == ("v1.4.2+5", "v1.4.2+5")
    (shown,) = client.get("/v1/workers").json()["workers"]
    assert (shown["release"], shown["sessions"][0]["release"]) == ("v1.4.2+5", "v1.4.2+5")


def test_each_attempt_has_the_release_of_its_session(app: Windlass, client: Client) -> None:
    remote = Remote.begin(client, release="v1.4.2+5")
    job = app.task_named("add").enqueue(1, 2)
    error = {"type": "OSError", "message": "no"}
    assert remote.finish(outcome(remote.take(), "failed", error=error)) == ["ok"]
    shown = client.get(f"/v1/jobs/{job.id}").json()
    assert (shown["release"], shown["history"][0]["release"]) == ("v1.4.2+5", "v1.4.2+5")
    assert remote.end().status_code == 204


@pytest.mark.parametrize("release", ["main@1", "v" * 65, "v 1", "v1\n"])
def test_a_release_has_only_plain_characters(client: Client, release: str) -> None:
    answer = client.post("/v1/sessions", {"name": "a", "tasks": ["add"], "release": release})
    assert answer.status_code == 422
    assert "body.release" in answer.text


def test_no_list_has_the_secret_of_a_session(app: Windlass, remote: Remote, client: Client) -> None:
    (packed,) = app.engine.infos([remote.session])
    secret = RemoteIntroduction.unpack(packed or b"").secret
    assert len(secret) == 64
    assert secret not in client.get("/v1/workers").text
    assert secret not in repr(app.workers())


def test_sessions_of_native_workers_are_no_sessions_of_the_protocol(
    app: Windlass, client: Client
) -> None:
    with app.worker():
        (worker,) = until(app.workers, "the native worker")
        native = Remote(client, worker.children[0].session)
        answer = client.post(f"/v1/sessions/{native.session}/beat", {"running": []})
        assert problem_of(answer) == (410, "session-gone")
        assert native.end().status_code == 204
        assert len(app.workers()) == 1, "the native session lives on"


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_beat_keeps_the_jobs_of_a_session(app: Windlass, remote: Remote) -> None:
    app.task_named("add").enqueue(1)
    job = remote.take()
    for _ in range(4):
        app.engine.clock_offset_ms += app.settings.lease_ms // 2
        assert remote.beat(job["id"]) == {"state": "ok", "cancel": [], "lost": []}
    assert remote.finish(outcome(job, "succeeded", result=1)) == ["ok"]


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_silent_session_loses_its_jobs(app: Windlass, remote: Remote, client: Client) -> None:
    job_id = app.task_named("add").enqueue(1).id
    job = remote.take()
    other = Remote.begin(client)
    for _ in range(4):
        app.engine.clock_offset_ms += app.settings.lease_ms // 3
        other.beat()  # not all are silent, so the engine was not away
    again = other.take()
    assert (again["id"], again["attempt"]) == (job_id, 1)
    assert again["token"] != job["token"]
    (record,) = app.engine.get([job_id])
    assert record is not None
    assert record.counters.losses == 1

    beat = client.post(f"/v1/sessions/{remote.session}/beat", {"running": [job_id]})
    assert problem_of(beat) == (410, "session-gone")
    for path in ("/v1/claims", "/v1/turn"):
        assert problem_of(client.post(path, remote.ask())) == (410, "session-gone")
    body = {"session": remote.session, "outcomes": [outcome(job, "succeeded")]}
    assert problem_of(client.post("/v1/claims/finish", body)) == (410, "session-gone")
    assert other.finish(outcome(again, "succeeded")) == ["ok"]


@pytest.mark.parametrize("engine_name", ENGINES)
def test_the_end_of_a_session_gives_jobs_back(
    app: Windlass, remote: Remote, client: Client
) -> None:
    job_id = app.task_named("add").enqueue(1).id
    remote.take()
    assert remote.end().status_code == 204
    (record,) = app.engine.get([job_id])
    assert record is not None
    assert (record.state, record.counters.attempt) == (State.READY, 0)
    assert app.workers() == []
    assert remote.end().status_code == 204, "a repeat is harmless"
    assert problem_of(client.post("/v1/claims", remote.ask())) == (410, "session-gone")
    assert Remote.begin(client).take()["id"] == job_id


def test_a_cancellation_reaches_the_heartbeat(app: Windlass, remote: Remote) -> None:
    job = app.task_named("add").enqueue(1)
    claimed = remote.take()
    assert remote.beat(job.id)["cancel"] == []
    job.cancel()
    assert remote.beat(job.id)["cancel"] == [job.id]
    assert remote.finish(outcome(claimed, "released")) == ["ok"]
    assert job.info().state is State.CANCELLED


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_heartbeat_compares_the_jobs_of_both_sides(app: Windlass, remote: Remote) -> None:
    lost, kept = (app.task_named("add").enqueue(n).id for n in range(2))
    remote.claim(limit=2)
    app.engine.clock_offset_ms += 11_000
    said = remote.beat(kept, "01m7gk6tx900smjc57av0rnpgb", answered=1)
    assert said == {"state": "ok", "cancel": [], "lost": ["01m7gk6tx900smjc57av0rnpgb"]}
    states = {record.id: record.state for record in app.engine.get([lost, kept]) if record}
    assert states == {lost: State.READY, kept: State.RUNNING}


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_late_heartbeat_takes_no_later_job_away(app: Windlass, remote: Remote) -> None:
    app.task_named("add").enqueue(1)
    assert remote.finish(outcome(remote.take(), "succeeded")) == ["ok"]
    app.task_named("add").enqueue(2)
    job = remote.take()
    app.engine.clock_offset_ms += 11_000
    for late in ({"answered": 1}, {"answered": 0}, {}):
        remote.beat(**late)
    assert remote.finish(outcome(job, "succeeded")) == ["ok"]


@pytest.mark.parametrize(
    ("command", "state"), [("quiet", "quiet"), ("stop", "stop"), ("run", "ok")]
)
def test_a_command_of_an_operator_reaches_the_heartbeat(
    app: Windlass, remote: Remote, command: str, state: str
) -> None:
    app.engine.command([remote.session], SessionCommand(command))
    assert remote.beat()["state"] == state


def test_a_session_belongs_to_its_caller(app: Windlass, caller: Caller) -> None:
    owner, other = caller("worker"), caller("worker")
    app.task_named("add").enqueue(1)
    mine = Remote.begin(owner)
    job = mine.take()
    theirs = mine.through(other)
    requests: list[tuple[str, dict[str, Any]]] = [
        (f"/v1/sessions/{mine.session}/beat", {"running": []}),
        ("/v1/claims", mine.ask()),
        ("/v1/turn", mine.ask()),
        (
            "/v1/claims/finish",
            {"session": mine.session, "outcomes": [outcome(job, "succeeded")]},
        ),
        (f"/v1/claims/{job['id']}/ack", {"session": mine.session, "token": job["token"]}),
    ]
    for path, body in requests:
        assert problem_of(other.post(path, body)) == (403, "forbidden"), path
    assert problem_of(theirs.end()) == (403, "forbidden")
    assert mine.finish(outcome(job, "succeeded")) == ["ok"]


def test_only_workers_may_begin_sessions(caller: Caller) -> None:
    body = {"name": "js", "tasks": ["add"]}
    assert caller("admin").post("/v1/sessions", body).status_code == 201
    for role in ("producer", "operator"):
        assert problem_of(caller(role).post("/v1/sessions", body)) == (403, "forbidden")


# ------------------------------------------------------------------------------------------ scopes


def test_a_token_for_some_queues_claims_only_from_these(app: Windlass, caller: Caller) -> None:
    app.task_named("add").enqueue(1)
    mail = app.task_named("once").enqueue("a@b.c")
    scoped = caller("worker", "mail", "bulk")
    remote = Remote.begin(scoped)
    (worker,) = app.workers()
    assert worker.queues == ("mail", "bulk")
    assert [job["id"] for job in remote.claim(limit=10)] == [mail.id]


def test_a_session_may_not_outlive_the_scope_of_its_token(
    app: Windlass, client: Client, caller: Caller
) -> None:
    caller("admin")  # the API stays closed
    for queues, session in (((), {}), (("mail", "bulk"), {"queues": ["bulk"]})):
        _, text = app.access_tokens.create(name="js", role="worker", queues=queues)
        remote = Remote.begin(client.with_token(text), **session)
        app.access_tokens.revoke("js")
        _, text = app.access_tokens.create(name="js", role="worker", queues=["mail"])
        answer = client.with_token(text).post("/v1/claims", remote.ask())
        assert problem_of(answer) == (403, "forbidden")
        app.access_tokens.revoke("js")


def test_a_worker_may_not_name_a_queue_of_others(caller: Caller) -> None:
    body = {"name": "js", "tasks": ["add"], "queues": ["mail", "default"]}
    assert problem_of(caller("worker", "mail").post("/v1/sessions", body)) == (403, "forbidden")


def test_a_pattern_must_be_spelled_out(caller: Caller) -> None:
    scoped = caller("worker", "mail*")
    answer = scoped.post("/v1/sessions", {"name": "js", "tasks": ["add"]})
    assert problem_of(answer) == (422, "invalid")
    (field,) = answer.json()["fields"]
    assert field["path"] == "body.queues"
    assert "mail*" in field["detail"]
    Remote.begin(scoped, queues=["mail.eu"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"tasks": []},
        {"tasks": ["a b"]},
        {"tasks": [f"t{n}" for n in range(501)]},
        {"queues": ["no spaces"]},
        {"labels": ["no+plus"]},
        {"slots": 0},
        {"name": ""},
        {"name": "\u00e9"},
        {"surprise": 1},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_wrong_session_is_refused(app: Windlass, client: Client, wrong: dict[str, Any]) -> None:
    answer = client.post("/v1/sessions", {"name": "js", "tasks": ["add"], **wrong})
    assert problem_of(answer) == (422, "invalid")
    assert app.workers() == []


def test_the_names_of_the_tasks_are_bounded_in_bytes(app: Windlass, client: Client) -> None:
    """Each list of workers reads the stored names of every session."""
    names = [f"{number:03}" + "\u2603" * 47 for number in range(114)]  # of 144 bytes each
    body = {"name": "js", "tasks": names}
    answer = client.post("/v1/sessions", body)
    assert problem_of(answer) == (422, "invalid")
    (field,) = answer.json()["fields"]
    assert field["path"] == "body.tasks"
    assert "16,384 bytes" in field["detail"]
    assert "16,416" in field["detail"]
    assert app.workers() == []
    assert client.post("/v1/sessions", {**body, "tasks": names[:113]}).status_code == 201


# ------------------------------------------------------------------------------------------ nonces


def test_nonces_ascend_and_cannot_be_guessed() -> None:
    def session(secret: str) -> RemoteSession:
        return RemoteSession.of("~js.0.1", RemoteIntroduction(secret=secret))

    nonces = [session("a").nonce(number) for number in (1, 2, 9, 10, 255, 256, 2**32 - 1)]
    assert nonces == sorted(set(nonces))
    assert {len(nonce) for nonce in nonces} == {40}
    assert nonces[0] == session("a").nonce(1), "the same through every instance"
    assert nonces[0][8:] != session("b").nonce(1)[8:]


def test_other_requests_do_not_delay_heartbeats(
    client: Client, api: WindlassApi, loop: LoopThread
) -> None:
    remote = Remote.begin(client)
    blocked = Event()

    async def occupy() -> list[asyncio.Task[bool]]:
        """Take all threads for requests that are not of the worker protocol."""
        calls = [api.gateway.call(blocked.wait, 30) for _ in range(THREADS)]
        return [asyncio.ensure_future(call) for call in calls]

    async def ended() -> None:
        await asyncio.gather(*occupied)

    occupied = loop.run(occupy())
    try:
        assert remote.beat()["state"] == "ok"
        assert remote.claim() == []
    finally:
        blocked.set()
    loop.run(asyncio.wait_for(ended(), 30))
